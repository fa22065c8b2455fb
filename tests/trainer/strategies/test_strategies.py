"""How ranks agree on one model: each strategy against one machine, or against another strategy that must equal it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tests.trainer import datasets
from tests.trainer.runs import EVERY, RECIPES, losses
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.trained_model import load_model
from trainyard.trainer.world import World

pytestmark = pytest.mark.ranks
SMALL = 4 * (8 * 3 + 3)
"""Bytes of the linear model's gradient."""


def trained(
    world: World, batches: str, model: str, strategy: dict[str, Any], recipe: str = "linear", **options: Any
) -> tuple[list[dict[str, float]], int]:
    given = {"epochs": 2, "batch_size": 40} | options
    fitted = fit(f"{RECIPES}:{recipe}", dataset=batches, model=model, world=world, strategy=strategy, **given)
    return fitted.history.epochs, fitted.bytes_sent


def with_options(world: World, batches: str, model: str, strategy: dict[str, Any], options: dict[str, Any]) -> Any:
    return trained(world, batches, model, strategy, **options)


@pytest.fixture(scope="module")
def pair() -> Iterator[Workers]:
    with Workers(2) as gang:
        yield gang


def weights(model: str) -> dict[str, Tensor]:
    return dict(load_model(model)._network.model.state_dict())


@pytest.mark.parametrize("name", EVERY)
def test_ranks_learn_and_end_with_one_model(pair: Workers, batches: str, tmp_path: Path, name: str) -> None:
    (first, sent), (second, _) = pair(trained, batches, str(tmp_path), EVERY[name])
    assert first[-1]["accuracy"] > 0.95 and first[-1]["loss"] < first[0]["loss"]
    assert losses(first) == losses(second)
    assert sent > 0 and first[0]["bytes_per_step"] > 0
    assert load_model(str(tmp_path)).output(datasets.blobs(5)).shape == (5, 3)


def environment_after(world: World, batches: str, model: str) -> tuple[str | None, list[str]]:
    os.environ["HOROVOD_RANK"] = "the launcher's"
    trained(world, batches, model, EVERY["horovod"], epochs=1)
    own = os.environ.pop("HOROVOD_RANK", None)
    return own, [name for name in os.environ if name.startswith("HOROVOD_")]


def test_horovod_leaves_the_environment_as_it_was(pair: Workers, batches: str, tmp_path: Path) -> None:
    assert pair(environment_after, batches, str(tmp_path)) == [("the launcher's", [])] * 2


@pytest.mark.parametrize("name", ["allreduce", "fsdp", "horovod"])
def test_gradients_of_all_ranks_make_the_steps_of_one_machine(
    pair: Workers, batches: str, tmp_path: Path, name: str
) -> None:
    alone, _ = trained(World(), batches, str(tmp_path / "alone"), EVERY["allreduce"])
    together = pair(trained, batches, str(tmp_path / "together"), EVERY[name])[0][0]
    assert losses(together) == pytest.approx(losses(alone), rel=1e-5)
    found = weights(str(tmp_path / "together"))
    for key, value in weights(str(tmp_path / "alone")).items():
        assert found[key].numpy() == pytest.approx(value.numpy(), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", ["allreduce", "fsdp", "horovod", "averaging"])
def test_accumulation_changes_nothing(pair: Workers, batches: str, tmp_path: Path, name: str) -> None:
    whole = pair(trained, batches, str(tmp_path / "whole"), EVERY[name])[0][0]
    parts = pair(with_options, batches, str(tmp_path / "parts"), EVERY[name], {"micro_batches": 3})[0][0]
    assert losses(parts) == pytest.approx(losses(whole), rel=1e-5)


def test_averaging_at_every_step_with_sgd_equals_one_machine(pair: Workers, batches: str, tmp_path: Path) -> None:
    alone, _ = trained(World(), batches, str(tmp_path / "alone"), EVERY["allreduce"])
    averaging = {"name": "averaging", "frequency": 1}
    averaged = pair(trained, batches, str(tmp_path / "averaged"), averaging)[0][0]
    assert losses(averaged) == pytest.approx(losses(alone), rel=1e-5)


def test_averaging_sends_parameters_and_momenta_once_in_five_steps(pair: Workers, batches: str, tmp_path: Path) -> None:
    _, sent = pair(trained, batches, str(tmp_path), EVERY["averaging"])[0]
    assert sent == 7 * 2 * SMALL, "after steps 5, 10, 15, 20 and 25, and at the ends of epochs: 13 and 26"


def test_warm_up_averages_each_of_the_first_steps(pair: Workers, batches: str, tmp_path: Path) -> None:
    _, sent = pair(trained, batches, str(tmp_path), {"name": "averaging", "warmup": 13, "optimizer_state": "reset"})[0]
    assert sent == (13 + 4) * SMALL, "the 13 of the first epoch; after 15, 20 and 25, and at the end of the second"


def test_diloco_with_one_inner_step_and_a_plain_outer_one_is_averaging(
    pair: Workers, batches: str, tmp_path: Path
) -> None:
    plain = {"name": "diloco", "inner_steps": 1, "outer_learning_rate": 1.0, "outer_momentum": 0.0}
    outer = pair(with_options, batches, str(tmp_path / "a"), plain, {"recipe": "plain"})[0][0]
    averaging = {"name": "averaging", "frequency": 1}
    averaged = pair(with_options, batches, str(tmp_path / "b"), averaging, {"recipe": "plain"})[0][0]
    assert losses(outer) == pytest.approx(losses(averaged), rel=1e-5)


def test_half_precision_halves_what_is_sent(pair: Workers, batches: str, tmp_path: Path) -> None:
    sent = {name: pair(trained, batches, str(tmp_path), EVERY[name])[0][1] for name in ("allreduce", "fp16", "bf16")}
    assert sent["allreduce"] == 26 * SMALL
    assert sent["fp16"] == sent["bf16"] == sent["allreduce"] // 2


def test_low_rank_gradients_of_a_wide_model_are_few_bytes(pair: Workers, batches: str, tmp_path: Path) -> None:
    options = {"recipe": "wide", "epochs": 3}
    dense, _ = pair(with_options, batches, str(tmp_path), EVERY["allreduce"], options)[0]
    low, _ = pair(with_options, batches, str(tmp_path), EVERY["powersgd"], options)[0]
    assert low[-1]["bytes_per_step"] < dense[-1]["bytes_per_step"] / 10
    assert low[-1]["accuracy"] > 0.95


def test_a_threshold_sends_few_elements_of_a_wide_model(pair: Workers, batches: str, tmp_path: Path) -> None:
    options = {"recipe": "wide", "epochs": 6}
    sparse = {"name": "threshold", "density": 0.005}
    epochs, _ = pair(with_options, batches, str(tmp_path), sparse, options)[0]
    dense, _ = pair(with_options, batches, str(tmp_path), EVERY["allreduce"], options)[0]
    assert epochs[-1]["bytes_per_step"] < dense[-1]["bytes_per_step"] / 25
    assert epochs[-1]["accuracy"] > 0.95


def test_a_threshold_reduces_all_elements_where_that_is_less(batches: str, tmp_path: Path) -> None:
    """16 of 27 elements, to each of two others."""
    with Workers(3) as three:
        epochs, sent = three(trained, batches, str(tmp_path / "a"), {"name": "threshold"})[0]
        dense, whole = three(trained, batches, str(tmp_path / "b"), EVERY["allreduce"])[0]
    assert sent == whole
    assert losses(epochs) == losses(dense)


@pytest.mark.parametrize(
    ("strategy", "options", "message"),
    [
        ("gossip", {}, "known strategies are allreduce, averaging, threshold, horovod, diloco, fsdp"),
        ({"name": "averaging", "frequency": 0}, {}, "frequency=0: Input should be greater than 0"),
        ({"name": "allreduce", "frequency": 5}, {}, "frequency is not a known option"),
        ({"name": "threshold", "density": 0.9}, {}, "density=0.9: Input should be less than or equal to 0.25"),
        ("threshold", {"precision": "float16"}, "strategy='threshold' and precision='float16' exclude each other"),
        ("fsdp", {"precision": "float16"}, "write precision='bfloat16'"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_done(
    batches: str, tmp_path: Path, strategy: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainyardError, match=r"^fit: ") as error:
        fit(f"{RECIPES}:linear", dataset=batches, model=str(tmp_path), strategy=strategy, **options)
    assert message in str(error.value)


def test_a_class_to_wrap_that_the_model_lacks_is_named(batches: str, tmp_path: Path) -> None:
    with Workers(2) as pair:
        outcomes = pair.begin(trained, batches, str(tmp_path), {"name": "fsdp", "wrap": ["Block"]}).outcomes()
    for outcome in outcomes:
        assert "wrap=['Block'] names Block, and the model has no module of that class. It has " in outcome


def test_blocks_of_a_sequence_are_sharded_one_by_one(pair: Workers, batches: str, tmp_path: Path) -> None:
    options = {"recipe": "wide"}
    sharded = pair(with_options, batches, str(tmp_path / "a"), EVERY["fsdp"], options)[0][0]
    whole = pair(with_options, batches, str(tmp_path / "b"), EVERY["allreduce"], options)[0][0]
    assert losses(sharded) == pytest.approx(losses(whole), rel=1e-4)
