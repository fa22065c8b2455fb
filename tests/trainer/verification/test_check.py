"""A model is compared with the trained one before it is published, and once before the first epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.trainer.loop.fit import FitResult, fit
from trainyard.trainer.model.trained_model import load_model
from trainyard.trainer.verification.check import ModelCheck

RECIPES = "tests.trainer.verification.recipes"


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    splits = {"train": datasets.blobs(60), "validation": datasets.blobs(20, seed=1)}
    return datasets.write(tmp_path_factory.mktemp("data") / "dataset", splits)


def train(batches: str, folder: Path, kind: str, recipe: str = "first_layer", **options: object) -> FitResult:
    return fit(
        f"{RECIPES}:{recipe}", recipe_params={"kind": kind}, dataset=batches, model=str(folder / "model"),
        **{"epochs": 2, "batch_size": 20} | options,
    )  # type: ignore[arg-type]  # fmt: skip


BEFORE = "before the first epoch"


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("attribute", "'0' (InAttribute): its attribute 'projection', a tensor [8, 8], has other values"),
        ("buffer", "'0' (InBuffer): its buffer 'projection', a tensor [8, 8], has other values"),
        ("module", "'0' (Global)"),
        ("centered", "forward creates '0.center'"),
    ],
)
def test_state_that_is_not_saved_ends_the_training_before_the_first_epoch(
    batches: str, tmp_path: Path, kind: str, cause: str
) -> None:
    with pytest.raises(TrainyardError) as raised:
        train(batches, tmp_path, kind)
    assert BEFORE in str(raised.value) and cause in str(raised.value)
    assert not [*tmp_path.glob("model/**/*.*")], "neither a model nor what was compared"


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("annealed", "'0' (Annealed): its attribute 'temperature' is 0.531 in the trained model, and 1 in the loaded"),
        ("centered while training", "'0.center'"),
    ],
)
def test_state_that_arises_while_training_prevents_the_publication(
    batches: str, tmp_path: Path, kind: str, cause: str
) -> None:
    with pytest.raises(TrainyardError) as raised:
        train(batches, tmp_path, kind)
    assert cause in str(raised.value) and BEFORE not in str(raised.value)
    assert not (tmp_path / "model" / "model.json").exists()


@pytest.mark.parametrize("kind", ["constant", "counting", "dropout", "noisy", "saliency"])
def test_a_model_that_can_be_built_anew_is_published(batches: str, tmp_path: Path, kind: str) -> None:
    result = train(batches, tmp_path, kind)
    assert not result.warnings and result.artifact
    assert {file.name for file in tmp_path.glob("model/*")} == {result.artifact.folder, "model.json"}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("noisy by itself", "it computes something else each time"),
        ("in training only", "its forward raises RuntimeError: this model has no prediction in evaluation mode"),
    ],
)
def test_a_model_that_cannot_be_compared_is_published_with_a_warning(
    batches: str, tmp_path: Path, kind: str, reason: str
) -> None:
    assert train(batches, tmp_path, kind).warnings == [
        f"The model was loaded, but not compared with the trained one: {reason}."
    ]


def test_the_check_does_not_change_the_training(batches: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network of the check is a copy, and the random numbers are those of a training without it."""
    checked = train(batches, tmp_path / "checked", "noisy", epoch_models=True).history.epochs
    monkeypatch.setattr(ModelCheck, "check_untrained", lambda *_: None)
    monkeypatch.setattr(ModelCheck, "check", lambda *_: None)
    bare = train(batches, tmp_path / "bare", "noisy").history.epochs
    assert [epoch["validation_loss"] for epoch in checked] == [epoch["validation_loss"] for epoch in bare]


def test_a_model_of_each_epoch_is_checked(batches: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"'temperature' is 0.729 in the trained model"):
        train(batches, tmp_path, "annealed", epoch_models=True, epochs=50)


def test_gradients_within_forward_reach_a_loaded_model(batches: str, tmp_path: Path) -> None:
    train(batches, tmp_path, "saliency")
    model, rows = load_model(str(tmp_path / "model")), datasets.blobs(5)
    assert model.predict(rows)["prediction"].shape == (5, 3)
    assert model.features("0", rows).shape == (5, 8) and not model.output(rows).requires_grad


@pytest.mark.parametrize("kind", ["tied", "interleaved"])
def test_weights_that_are_views_of_one_memory_are_saved_and_restored(batches: str, tmp_path: Path, kind: str) -> None:
    result = train(batches, tmp_path, kind, "views", checkpoints=str(tmp_path / "checkpoints"))
    again = train(batches, tmp_path / "whole", kind, "views", epochs=4)
    resumed = train(batches, tmp_path, kind, "views", epochs=4, checkpoints=str(tmp_path / "checkpoints"))
    assert not result.warnings
    assert resumed.history.epochs[-1]["validation_loss"] == again.history.epochs[-1]["validation_loss"]


def test_an_optimizer_of_sparse_gradients_resumes(batches: str, tmp_path: Path) -> None:
    whole = train(batches, tmp_path / "whole", "sparse", "optimizers", epochs=4)
    for epochs in (2, 4):
        resumed = train(
            batches, tmp_path, "sparse", "optimizers", epochs=epochs, checkpoints=str(tmp_path / "checkpoints")
        )
    assert [epoch["loss"] for epoch in resumed.history.epochs] == [epoch["loss"] for epoch in whole.history.epochs]


def test_an_optimizer_whose_state_cannot_be_restored_is_refused_before_the_first_epoch(
    batches: str, tmp_path: Path
) -> None:
    with pytest.raises(
        TrainyardError, match=r"optimizer=Secretive: the state 'memory' of 'model.weight' .* cannot be restored"
    ):
        train(batches, tmp_path, "secretive", "optimizers", checkpoints=str(tmp_path / "checkpoints"))
    assert not [*tmp_path.glob("checkpoints/**/*.distcp")]
    train(batches, tmp_path, "secretive", "optimizers")
