"""Distributed strategies, compared with a single worker, or with another strategy that must give the same result."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchmetrics import MeanMetric

from tests.trainer import datasets
from tests.trainer.recipes import plain
from tests.trainer.runs import RECIPES, STRATEGIES, get_losses
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.model.recipe import Batch, Recipe
from trainyard.trainer.verification.check import ROWS
from trainyard.trainer.world import World

pytestmark = pytest.mark.ranks
SMALL = 4 * (8 * 3 + 3)
"""Bytes of the linear model's gradient."""


def train(
    world: World, batches: str, model: str, strategy: dict[str, Any], recipe: str = "linear", **options: Any
) -> tuple[list[dict[str, float]], int]:
    defaults = {"epochs": 2, "batch_size": 40} | options
    fitted = fit(f"{RECIPES}:{recipe}", dataset=batches, model=model, world=world, strategy=strategy, **defaults)
    return fitted.history.epochs, fitted.bytes_sent


def train_with_options(
    world: World, batches: str, model: str, strategy: dict[str, Any], options: dict[str, Any]
) -> Any:
    return train(world, batches, model, strategy, **options)


def weights(model: str) -> dict[str, Tensor]:
    return dict(load_model(model).network.model.state_dict())


@pytest.mark.parametrize("name", STRATEGIES)
def test_workers_learn_and_end_with_one_model(pair: Workers, batches: str, tmp_path: Path, name: str) -> None:
    (first, sent), (second, _) = pair(train, batches, str(tmp_path), STRATEGIES[name])
    assert first[-1]["accuracy"] > 0.95 and first[-1]["loss"] < first[0]["loss"]
    assert get_losses(first) == get_losses(second)
    assert sent > 0 and first[0]["bytes_per_step"] > 0
    assert load_model(str(tmp_path)).output(datasets.blobs(5)).shape == (5, 3)


def batch_normalized(transposed: bool) -> Recipe:
    model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3))
    if transposed:
        model.register_buffer("transposed", torch.arange(6.0).reshape(2, 3).T)
    return Recipe(model=model, features="x", label="label", loss=nn.CrossEntropyLoss())


def get_buffers_of_validation(world: World, batches: str, model: str, strategy: dict[str, Any]) -> list[list[float]]:
    """Return all buffers at each forward pass of validation."""
    seen: list[list[float]] = []

    def record(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, nn.Sequential) and not module.training and len(inputs[0]) != ROWS:  # of the check
            seen.append([float(value) for buffer in module.buffers() for value in buffer.flatten()])

    with nn.modules.module.register_module_forward_pre_hook(record):
        fit(
            f"{__name__}:batch_normalized", dataset=batches, model=model, world=world, strategy=strategy, epochs=2,
            batch_size=40, recipe_params={"transposed": strategy["name"] in ("allreduce", "fsdp")},
        )  # fmt: skip
    return seen


@pytest.mark.parametrize("name", ["allreduce", "powersgd", "fsdp", "horovod", "threshold"])
def test_all_workers_validate_with_the_same_buffers(pair: Workers, batches: str, tmp_path: Path, name: str) -> None:
    first, second = pair(get_buffers_of_validation, batches, str(tmp_path), STRATEGIES[name])
    assert first and first == second
    assert first[0] != first[-1]


def get_environment_after(world: World, batches: str, model: str) -> tuple[str | None, list[str]]:
    os.environ["HOROVOD_RANK"] = "the launcher's"
    train(world, batches, model, STRATEGIES["horovod"], epochs=1)
    value = os.environ.pop("HOROVOD_RANK", None)
    return value, [name for name in os.environ if name.startswith("HOROVOD_")]


def test_horovod_leaves_the_environment_as_it_was(pair: Workers, batches: str, tmp_path: Path) -> None:
    assert pair(get_environment_after, batches, str(tmp_path)) == [("the launcher's", [])] * 2


@pytest.mark.parametrize("name", ["allreduce", "fsdp", "horovod"])
def test_averaged_gradients_give_the_steps_of_a_single_worker(
    pair: Workers, batches: str, tmp_path: Path, name: str
) -> None:
    alone, _ = train(World(), batches, str(tmp_path / "alone"), STRATEGIES["allreduce"])
    together = pair(train, batches, str(tmp_path / "together"), STRATEGIES[name])[0][0]
    assert get_losses(together) == pytest.approx(get_losses(alone), rel=1e-5)
    together_weights = weights(str(tmp_path / "together"))
    for key, value in weights(str(tmp_path / "alone")).items():
        assert together_weights[key].numpy() == pytest.approx(value.numpy(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", ["allreduce", "fsdp", "horovod", "averaging"])
def test_micro_batches_do_not_change_the_result(pair: Workers, batches: str, tmp_path: Path, name: str) -> None:
    expected = pair(train, batches, str(tmp_path / "expected"), STRATEGIES[name])[0][0]
    parts = pair(train_with_options, batches, str(tmp_path / "parts"), STRATEGIES[name], {"micro_batches": 3})[0][0]
    assert get_losses(parts) == pytest.approx(get_losses(expected), rel=1e-5)


@pytest.mark.parametrize("batch_size", [5, *(pytest.param(size, marks=pytest.mark.full) for size in (7, 9))])
def test_micro_batches_of_a_sharded_model_are_as_many_on_all_workers(
    pair: Workers, batches: str, tmp_path: Path, batch_size: int
) -> None:
    """Each micro-batch is a collective: with a different number of them the workers would wait forever."""
    options = {"micro_batches": 4, "batch_size": batch_size, "epochs": 1}
    alone, _ = train(World(), batches, str(tmp_path / "alone"), STRATEGIES["allreduce"], **options)
    together = pair(train_with_options, batches, str(tmp_path / "sharded"), STRATEGIES["fsdp"], options)[0][0]
    assert get_losses(together) == pytest.approx(get_losses(alone), rel=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", ["allreduce", "threshold"])
def test_a_compiled_model_communicates_once_for_all_micro_batches(
    pair: Workers, batches: str, tmp_path: Path, name: str
) -> None:
    options = {"micro_batches": 2, "epochs": 1}
    expected = pair(train_with_options, batches, str(tmp_path / "a"), STRATEGIES[name], options)[0]
    compiled = pair(train_with_options, batches, str(tmp_path / "b"), STRATEGIES[name], options | {"compile": True})[0]
    assert compiled[1] == expected[1], "bytes"
    assert get_losses(compiled[0]) == pytest.approx(get_losses(expected[0]), rel=1e-2)


def test_averaging_at_every_step_with_sgd_equals_a_single_worker(pair: Workers, batches: str, tmp_path: Path) -> None:
    alone, _ = train(World(), batches, str(tmp_path / "alone"), STRATEGIES["allreduce"])
    averaging = {"name": "averaging", "frequency": 1}
    averaged = pair(train, batches, str(tmp_path / "averaged"), averaging)[0][0]
    assert get_losses(averaged) == pytest.approx(get_losses(alone), rel=1e-5)


def test_averaging_sends_parameters_and_momenta_once_in_five_steps(pair: Workers, batches: str, tmp_path: Path) -> None:
    _, sent = pair(train, batches, str(tmp_path), STRATEGIES["averaging"])[0]
    assert sent == 7 * 2 * SMALL, "after steps 5, 10, 15, 20 and 25, and at the ends of epochs: 13 and 26"


def test_warm_up_averages_each_of_the_first_steps(pair: Workers, batches: str, tmp_path: Path) -> None:
    _, sent = pair(train, batches, str(tmp_path), {"name": "averaging", "warmup": 13, "optimizer_state": "reset"})[0]
    assert sent == (13 + 4) * SMALL, "the 13 of the first epoch; after 15, 20 and 25, and at the end of the second"


def test_diloco_with_one_inner_step_and_plain_sgd_outside_equals_averaging(
    pair: Workers, batches: str, tmp_path: Path
) -> None:
    plain = {"name": "diloco", "inner_steps": 1, "outer_learning_rate": 1.0, "outer_momentum": 0.0}
    outer = pair(train_with_options, batches, str(tmp_path / "a"), plain, {"recipe": "plain"})[0][0]
    averaging = {"name": "averaging", "frequency": 1}
    averaged = pair(train_with_options, batches, str(tmp_path / "b"), averaging, {"recipe": "plain"})[0][0]
    assert get_losses(outer) == pytest.approx(get_losses(averaged), rel=1e-5)


def test_half_precision_halves_the_bytes(pair: Workers, batches: str, tmp_path: Path) -> None:
    sent = {name: pair(train, batches, str(tmp_path), STRATEGIES[name])[0][1] for name in ("allreduce", "fp16", "bf16")}
    assert sent["allreduce"] == 26 * SMALL
    assert sent["fp16"] == sent["bf16"] == sent["allreduce"] // 2


def test_low_rank_gradients_of_a_wide_model_take_few_bytes(pair: Workers, batches: str, tmp_path: Path) -> None:
    options = {"recipe": "wide", "epochs": 3}
    dense, _ = pair(train_with_options, batches, str(tmp_path), STRATEGIES["allreduce"], options)[0]
    low, _ = pair(train_with_options, batches, str(tmp_path), STRATEGIES["powersgd"], options)[0]
    assert low[-1]["bytes_per_step"] < dense[-1]["bytes_per_step"] / 10
    assert low[-1]["accuracy"] > 0.95


def test_threshold_sends_few_elements_of_a_wide_model(pair: Workers, batches: str, tmp_path: Path) -> None:
    options = {"recipe": "wide", "epochs": 6}
    sparse = {"name": "threshold", "density": 0.005}
    epochs, _ = pair(train_with_options, batches, str(tmp_path), sparse, options)[0]
    dense, _ = pair(train_with_options, batches, str(tmp_path), STRATEGIES["allreduce"], options)[0]
    assert epochs[-1]["bytes_per_step"] < dense[-1]["bytes_per_step"] / 25
    assert epochs[-1]["accuracy"] > 0.95


@pytest.mark.full
def test_threshold_reduces_all_elements_where_that_takes_fewer_bytes(batches: str, tmp_path: Path) -> None:
    """16 of 27 elements, to each of three others."""
    with Workers(4) as four:
        epochs, sent = four(train, batches, str(tmp_path / "a"), {"name": "threshold"})[0]
        dense, dense_sent = four(train, batches, str(tmp_path / "b"), STRATEGIES["allreduce"])[0]
    assert sent == dense_sent
    assert get_losses(epochs) == pytest.approx(get_losses(dense), rel=1e-6)


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("gossip", {}, "known strategies are allreduce, averaging, threshold, horovod, diloco, fsdp"),
        ({"name": "averaging", "frequency": 0}, {}, "frequency=0: write a number greater than 0"),
        ({"name": "allreduce", "frequency": 5}, {}, "frequency is not a known option"),
        ({"name": "threshold", "density": 0.9}, {}, "density=0.9: write 0.25 or less"),
        (
            {"name": "allreduce", "compression": "powersgd", "find_unused_parameters": True}, {},
            "compression='powersgd' and find_unused_parameters exclude each other",
        ),
        ("threshold", {"precision": "float16"}, "strategy='threshold' and precision='float16' exclude each other"),
        ("fsdp", {"precision": "float16"}, "write precision='bfloat16'"),
        (
            {"name": "allreduce", "compression": "powersgd"}, {"precision": "float16"},
            "compression='powersgd' and precision='float16' exclude each other: ",
        ),
    ],
)  # fmt: skip
def test_invalid_options_are_refused_before_training(
    batches: str, tmp_path: Path, strategy: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainyardError, match=r"^fit: ") as error:
        fit(f"{RECIPES}:linear", dataset=batches, model=str(tmp_path), strategy=strategy, **options)
    assert message in str(error.value)


@pytest.mark.full
def test_the_error_for_an_unknown_class_to_wrap_names_it(batches: str, tmp_path: Path) -> None:
    with Workers(2) as pair:
        outcomes = pair.start(train, batches, str(tmp_path), {"name": "fsdp", "wrap": ["Block"]}).outcomes()
    for outcome in outcomes:
        assert "wrap=['Block'] names Block, but the model has no module of that class. Its classes are " in outcome


def test_blocks_of_a_sequence_are_sharded_one_by_one(pair: Workers, batches: str, tmp_path: Path) -> None:
    options = {"recipe": "wide"}
    sharded = pair(train_with_options, batches, str(tmp_path / "a"), STRATEGIES["fsdp"], options)[0][0]
    unsharded = pair(train_with_options, batches, str(tmp_path / "b"), STRATEGIES["allreduce"], options)[0][0]
    assert get_losses(sharded) == pytest.approx(get_losses(unsharded), rel=1e-4)


class Metered(nn.Sequential):
    """A model that measures its output with a metric of torchmetrics."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 8), nn.Linear(8, 3))
        self.scale = MeanMetric()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self[1](self[0](x))
        self.scale.update(output.detach())
        return output


def known_rows() -> Recipe:
    """Return a recipe whose loss is NaN for rows of which no label is known."""

    def step(model: nn.Module, columns: Batch) -> Tensor:
        label = columns["label"]
        known = label >= 0
        losses = cross_entropy(model(columns), label.clamp(min=0), reduction="none") * known
        return losses.sum() / known.sum() * known.sum() / len(label)

    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3))
    return Recipe(model=model, features="x", label="label", step=step, optimizer=plain().optimizer)


def train_known_rows(world: World, batches: str, model: str, strategy: dict[str, Any]) -> list[float]:
    fitted = fit(
        f"{__name__}:known_rows", dataset=batches, model=model, world=world, strategy=strategy, epochs=2, batch_size=34,
        micro_batches=2,
    )  # fmt: skip
    return get_losses(fitted.history.epochs)


@pytest.mark.parametrize("name", ["allreduce", "fsdp", "horovod", "threshold"])
def test_a_worker_without_rows_of_the_last_batch_adds_nothing(pair: Workers, tmp_path: Path, name: str) -> None:
    """It computes the first row, which does not count: neither do its loss and its gradient, which are NaN here."""
    splits = {"train": datasets.blobs(103), "validation": datasets.blobs(35, seed=1)}
    for rows in splits.values():
        rows["label"][0] = -1
    uri = datasets.write(tmp_path / "dataset", splits)
    alone = train_known_rows(World(), uri, str(tmp_path / "alone"), STRATEGIES["allreduce"])
    first, second = pair(train_known_rows, uri, str(tmp_path / "together"), STRATEGIES[name])
    assert first == second == pytest.approx(alone, rel=0.1 if name == "threshold" else 1e-5)


class SeveralTypes(nn.Module):
    """A model of float32 and float64, with parameters that are integers or not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 4), nn.Linear(4, 3, dtype=torch.float64)
        self.number = nn.Parameter(torch.tensor([123456789, 2**53 + 1]), requires_grad=False)
        self.constant = nn.Parameter(torch.tensor([1 / 3], dtype=torch.float64), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.last(self.first(x).double())
        return output


def several_types() -> Recipe:
    return Recipe(model=SeveralTypes(), features="x", label="label", loss=nn.CrossEntropyLoss())


def train_several_types(world: World, batches: str, model: str, strategy: dict[str, Any]) -> list[float]:
    fitted = fit(
        f"{__name__}:several_types", dataset=batches, model=model, world=world, strategy=strategy, epochs=2,
        batch_size=40,
    )  # fmt: skip
    return get_losses(fitted.history.epochs)


@pytest.mark.parametrize("name", ["allreduce", "averaging", "threshold", "diloco", "horovod"])
def test_each_type_of_parameters_is_synchronized_in_its_own_precision(
    pair: Workers, batches: str, tmp_path: Path, name: str
) -> None:
    first, second = pair(train_several_types, batches, str(tmp_path), STRATEGIES[name])
    assert first == second and first[-1] < first[0]
    trained = weights(str(tmp_path))
    assert trained["number"].tolist() == [123456789, 2**53 + 1]
    assert trained["constant"] == torch.tensor(1 / 3, dtype=torch.float64)
    assert not torch.equal(trained["last.weight"], trained["last.weight"].float().double())


@pytest.mark.parametrize("name", [pytest.param("powersgd", marks=pytest.mark.full), "fsdp"])
def test_a_strategy_that_needs_parameters_of_one_type_says_so(batches: str, tmp_path: Path, name: str) -> None:
    with Workers(2) as pair:
        outcomes = pair.start(train_several_types, batches, str(tmp_path), STRATEGIES[name]).outcomes()
    for outcome in outcomes:
        assert "cannot process parameters of several types (float32, float64). Convert the model to one" in outcome


def metered() -> Recipe:
    return Recipe(model=Metered(), features="x", label="label", loss=nn.CrossEntropyLoss())


def train_metered(world: World, batches: str, model: str, strategy: dict[str, Any]) -> list[float]:
    fitted = fit(
        f"{__name__}:metered", dataset=batches, model=model, world=world, strategy=strategy, epochs=1, batch_size=40
    )
    return get_losses(fitted.history.epochs)


def test_a_model_with_a_metric_can_be_sharded(pair: Workers, batches: str, tmp_path: Path) -> None:
    """A metric moves its states itself, and takes no `recurse`."""
    sharded = pair(train_metered, batches, str(tmp_path / "a"), STRATEGIES["fsdp"])[0]
    unsharded = pair(train_metered, batches, str(tmp_path / "b"), STRATEGIES["allreduce"])[0]
    assert sharded == pytest.approx(unsharded, rel=1e-4)


def test_weights_that_are_tied_across_blocks_can_be_sharded(pair: Workers, batches: str, tmp_path: Path) -> None:
    """torch refuses a parameter in two groups."""
    options = {"recipe": "tied_blocks"}
    sharded = pair(train_with_options, batches, str(tmp_path / "a"), STRATEGIES["fsdp"], options)[0][0]
    unsharded = pair(train_with_options, batches, str(tmp_path / "b"), STRATEGIES["allreduce"], options)[0][0]
    assert get_losses(sharded) == pytest.approx(get_losses(unsharded), rel=1e-4)


@pytest.mark.parametrize("options", [{}, {"micro_batches": 2}])
def test_a_layer_that_some_batches_do_not_use_is_trained_as_by_a_single_worker(
    pair: Workers, batches: str, tmp_path: Path, options: dict[str, Any]
) -> None:
    options = options | {"recipe": "routed"}
    alone, _ = train(World(), batches, str(tmp_path / "alone"), STRATEGIES["allreduce"], **options)
    together = pair(train_with_options, batches, str(tmp_path / "together"), STRATEGIES["finding unused"], options)[0][
        0
    ]
    assert get_losses(together) == pytest.approx(get_losses(alone), rel=1e-4)


def test_gradients_of_a_layer_that_some_batches_do_not_use_can_be_compressed(
    pair: Workers, batches: str, tmp_path: Path
) -> None:
    strategy = STRATEGIES["finding unused"] | {"compression": "fp16"}
    (first, _), (second, _) = pair(train_with_options, batches, str(tmp_path), strategy, {"recipe": "routed"})
    assert first[-1]["loss"] < first[0]["loss"]
    assert get_losses(first) == get_losses(second)


@pytest.mark.parametrize("name", ["allreduce", "horovod"])
def test_sparse_gradients_are_averaged_as_by_a_single_worker(
    pair: Workers, batches: str, tmp_path: Path, name: str
) -> None:
    options = {"recipe": "tokens", "micro_batches": 2}
    alone, _ = train(World(), batches, str(tmp_path / "alone"), STRATEGIES["allreduce"], **options)
    together, sent = pair(train_with_options, batches, str(tmp_path / "together"), STRATEGIES[name], options)[0]
    assert get_losses(together) == pytest.approx(get_losses(alone), rel=1e-4)
    assert sent > 0


@pytest.mark.parametrize(
    "name", ["fsdp", *(pytest.param(name, marks=pytest.mark.full) for name in ("fp16", "powersgd", "horovod fp16"))]
)
def test_a_strategy_that_cannot_send_sparse_gradients_names_the_module(batches: str, tmp_path: Path, name: str) -> None:
    with Workers(2) as pair:
        outcomes = pair.start(
            train_with_options, batches, str(tmp_path), STRATEGIES[name], {"recipe": "tokens"}
        ).outcomes()
    for outcome in outcomes:
        assert f"strategy='{STRATEGIES[name]['name']}'" in outcome
        assert "sparse gradients of 'model.embed' (EmbeddingBag). Write sparse=False there" in outcome
