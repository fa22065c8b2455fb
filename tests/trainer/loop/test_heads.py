"""Training with several heads: the sum of their losses, over the labels that there are, on any number of workers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, root_mean_squared_error
from torch import Tensor
from torch.nn import functional

from tests.trainer import datasets, heads
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer.checkpointing.compatibility import check_resumable, describe_recipe
from trainyard.trainer.data.dataset import Dataset
from trainyard.trainer.loop.fit import FitResult, fit
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.run.signals.interruptions import TerminatedError
from trainyard.trainer.world import World

RECIPES = "tests.trainer.heads"
EPOCHS, BATCH = 3, 25


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> str:
    return heads.write(tmp_path_factory.mktemp("complete"))


@pytest.fixture(scope="module")
def incomplete(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dataset whose rows lack half of each label."""
    return heads.write(tmp_path_factory.mktemp("incomplete"), missing=True)


@pytest.fixture(scope="module")
def pair() -> Iterator[Workers]:
    with Workers(2) as workers:
        yield workers


def train(dataset: str, model: Path | str, recipe: str = "two", **options: Any) -> FitResult:
    options = {"epochs": EPOCHS, "batch_size": BATCH} | options
    return fit(f"{RECIPES}:{recipe}", dataset=dataset, model=str(model), **options)


def read_weights(model: Path | str) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in load_model(str(model)).recipe.model.state_dict().items()}


def train_by_hand(dataset: str) -> tuple[dict[str, Tensor], list[list[float]]]:
    """Return the weights and the mean losses of a plain PyTorch loop over the same batches, with masks of its own."""
    torch.manual_seed(0)
    model = heads.Two("tuple")
    optimizer = heads.sgd(model.parameters())
    data = Dataset(dataset, batch_size=BATCH)
    epochs = []
    for _ in range(EPOCHS):
        sums, counts = [0.0, 0.0], [0, 0]
        for batch in data:
            kind, size = model(batch["x"])
            has_kind, has_size = batch["kind"] >= 0, ~batch["size"].isnan()
            losses = [
                functional.cross_entropy(kind[has_kind], batch["kind"][has_kind]),
                functional.mse_loss(size[has_size], batch["size"][has_size]),
            ]
            for number, (loss, has_label) in enumerate(zip(losses, (has_kind, has_size), strict=True)):
                sums[number] += loss.item() * int(has_label.sum())
                counts[number] += int(has_label.sum())
            optimizer.zero_grad()
            (losses[0] + 0.25 * losses[1]).backward()
            optimizer.step()
        epochs.append([total / count for total, count in zip(sums, counts, strict=True)])
    return model.state_dict(), epochs


@pytest.mark.parametrize("dataset", ["complete", "incomplete"])
def test_two_heads_train_as_a_loop_by_hand_does(dataset: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    uri = request.getfixturevalue(dataset)
    expected, losses = train_by_hand(uri)
    history = train(uri, tmp_path).history
    assert history.best == EPOCHS - 1, "the weights are those of the last epoch"
    for epoch, (kind, size) in zip(history.epochs, losses, strict=True):
        assert [epoch["kind/loss"], epoch["size/loss"]] == pytest.approx([kind, size], rel=1e-5)
        assert epoch["loss"] == pytest.approx(kind + 0.25 * size, rel=1e-5)
    for name, tensor in read_weights(tmp_path).items():
        assert torch.allclose(tensor, expected[name], atol=1e-6)


def test_one_head_trains_bit_for_bit_as_the_recipe_without_heads(complete: str, tmp_path: Path) -> None:
    named, plain = (train(complete, tmp_path / name, name).history for name in ("of_one_head", "of_one_label"))
    for with_head, without in zip(named.epochs, plain.epochs, strict=True):
        for name in ("loss", "validation_loss"):
            assert with_head[name] == with_head[f"kind/{name}"] == without[name]
        assert with_head["kind/accuracy"] == without["accuracy"]
    weights = [read_weights(tmp_path / name) for name in ("of_one_head", "of_one_label")]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_metrics_count_the_rows_that_have_the_label_of_their_head(incomplete: str, tmp_path: Path) -> None:
    metrics = train(incomplete, tmp_path).metrics
    rows = heads.rows(60, 1, missing=True)
    predicted = load_model(str(tmp_path)).predict({"x": rows["x"]})
    has_kind, has_size = (~np.ma.getmaskarray(rows[name]) for name in ("kind", "size"))
    kind, size = np.asarray(rows["kind"])[has_kind], np.asarray(rows["size"])[has_size]
    classes = predicted["kind_class"][has_kind]
    assert metrics["kind/accuracy"] == pytest.approx(accuracy_score(kind, classes))
    assert metrics["kind/f1"] == pytest.approx(f1_score(kind, classes, average="macro"))
    assert metrics["size/rmse"] == pytest.approx(root_mean_squared_error(size, predicted["size_prediction"][has_size]))
    assert metrics["size/validation_loss"] == pytest.approx(metrics["size/rmse"] ** 2, rel=1e-5)


def train_in_group(world: World, dataset: str, model: str) -> list[dict[str, float]]:
    return train(dataset, model, world=world, micro_batches=2).history.epochs


def test_two_workers_train_as_one_does(pair: Workers, incomplete: str, tmp_path: Path) -> None:
    """A mean of the means of workers, or of micro-batches, would be another one: they have other numbers of labels."""
    epochs, _ = pair(train_in_group, incomplete, str(tmp_path / "two"))
    alone = train(incomplete, tmp_path / "one").history.epochs
    names = [name for name in alone[0] if name != "rows_per_second"]
    assert "size/rmse" in names
    for together, single in zip(epochs, alone, strict=True):
        assert [together[name] for name in names] == pytest.approx([single[name] for name in names], rel=1e-4)
    weights = read_weights(tmp_path / "one")
    assert all(torch.allclose(weights[n], tensor, atol=1e-6) for n, tensor in read_weights(tmp_path / "two").items())


def test_a_training_that_resumes_within_an_epoch_has_the_losses_of_all_its_labels(
    incomplete: str, tmp_path: Path
) -> None:
    expected = train(incomplete, tmp_path / "whole", "terminated").history.epochs
    heads.Terminated.step = 6  # of 4 in an epoch
    saved = str(tmp_path / "checkpoints")
    with pytest.raises(TerminatedError):
        train(incomplete, tmp_path / "parts", "terminated", checkpoints=saved)
    resumed = train(incomplete, tmp_path / "parts", "terminated", checkpoints=saved).history.epochs
    for epoch, whole in zip(resumed, expected, strict=True):
        for name in ("loss", "kind/loss", "size/loss", "size/rmse"):
            assert epoch[name] == pytest.approx(whole[name], rel=1e-6)


def test_another_weight_of_a_head_than_in_the_checkpoint_is_refused() -> None:
    def describe(weight: float) -> dict[str, str]:
        recipe = heads.two(weight=weight)
        return describe_recipe(recipe, heads.sgd(recipe.model.parameters()))

    loop = {"schedule": None, "workers": 1, "recipe": describe(1.0)}
    check_resumable("checkpoint", loop, describe(1.0), 1, has_schedule=False, epochs=1)
    with pytest.raises(TrainyardError, match=r"the recipe's heads is .*0\.5.*, but was .*1\.0"):
        check_resumable("checkpoint", loop, describe(0.5), 1, has_schedule=False, epochs=1)


def test_batches_in_which_a_head_has_no_label_add_nothing_to_it(tmp_path: Path) -> None:
    """Of 40 rows one has a size, so that most batches have none."""
    rows = heads.rows(40)
    size = np.asarray(rows["size"])
    rows["size"] = np.ma.masked_array(size, np.arange(40) > 0)
    validation = heads.rows(20, 1) | {"size": np.ma.masked_array(np.zeros(20, np.float32), True)}
    uri = datasets.write(tmp_path / "dataset", {"train": rows, "validation": validation})
    history = train(uri, tmp_path / "model", epochs=2, batch_size=5).history
    assert all(epoch["size/loss"] > 0 and math.isfinite(epoch["validation_loss"]) for epoch in history.epochs)
    assert math.isnan(history.epochs[0]["size/rmse"]) and math.isnan(history.epochs[0]["size/validation_loss"])


@pytest.mark.parametrize(
    ("monitor", "best"), [("kind/accuracy", max), ("size/rmse", min), ("size/loss", min), ("kind/validation_loss", min)]
)
def test_the_best_epoch_is_chosen_by_the_metric_of_a_head(
    complete: str, tmp_path: Path, monitor: str, best: Any
) -> None:
    fitted = train(complete, tmp_path, monitor=monitor, batch_size=10)
    name = "size/validation_loss" if monitor == "size/loss" else monitor
    assert fitted.metrics[name] == best(epoch[name] for epoch in fitted.history.epochs)


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        ("kind alone", "the model returns no output of the head 'size', but a dict of kind"),
        ("three", "the model returns 3 outputs, and the recipe has the heads kind, size"),
        ("a column", r"head 'size': the output of the model has shape \[.*, 1\], and the label 'size'"),
        ("two classes", "head 'kind': the model has 2 outputs for each row, so labels must be 0 to 1"),
    ],
)
def test_outputs_that_do_not_match_the_heads_are_refused_before_the_first_epoch(
    complete: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], returns: str, message: str
) -> None:
    with pytest.raises(TrainyardError, match=message):
        train(complete, tmp_path, recipe_params={"returns": returns})
    assert "epoch" not in capsys.readouterr().out


def test_heads_with_the_same_metrics_have_values_of_their_own(complete: str, tmp_path: Path) -> None:
    metrics = train(complete, tmp_path / "model", "sharing_metrics", epochs=1).history.epochs[0]
    model = load_model(str(tmp_path / "model"))
    [rows] = Dataset(complete, split="validation", batch_size=60, shuffle=False)
    size = torch.from_numpy(model.predict({"x": rows["x"]})["size_prediction"])
    assert metrics["size/mae"] == pytest.approx((size - rows["size"]).abs().mean().item(), abs=1e-5)
    assert metrics["other/mae"] == pytest.approx((size + rows["size"]).abs().mean().item(), abs=1e-5)


def test_a_metric_of_ones_own_counts_the_rows_whose_label_the_loss_ignores(complete: str, tmp_path: Path) -> None:
    """As an evaluation does."""
    metrics = train(complete, tmp_path / "model", "ignoring_a_class", epochs=1).history.epochs[0]
    [rows] = Dataset(complete, split="validation", batch_size=60, shuffle=False)
    predicted = load_model(str(tmp_path / "model")).predict({"x": rows["x"]})["prediction"].argmax(1)
    assert metrics["accuracy"] == pytest.approx(accuracy_score(rows["kind"], predicted))


def test_a_model_may_return_something_else_where_it_is_not_trained(tmp_path: Path) -> None:
    dataset = datasets.write(tmp_path / "dataset", {"train": heads.rows(50)})
    assert math.isfinite(train(dataset, tmp_path / "model", "other_in_training", epochs=1).history.epochs[0]["loss"])
