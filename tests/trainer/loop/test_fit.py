"""`fit` in one process, as in a shell or notebook."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainer import datasets
from tests.trainer.recipes import linear
from trainyard.errors import TrainyardError
from trainyard.schemas.model_artifact import epoch_model_uri
from trainyard.schemas.runs import checkpoint as index
from trainyard.schemas.runs.checkpoint import Checkpoint
from trainyard.trainer.checkpointing.checkpoints import SavedCheckpoint
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.model.recipe import Recipe

RECIPES = "tests.trainer.recipes"


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("data") / "dataset"
    return datasets.write(directory, {"train": datasets.blobs(600), "validation": datasets.blobs(200, seed=1)})


def validate(model: str) -> dict[str, float]:
    """Return the metrics of a stored model on the validation split."""
    rows = datasets.blobs(200, seed=1)
    label = torch.from_numpy(rows["label"])
    output = load_model(model).output(rows).cpu()
    loss = torch.nn.functional.cross_entropy(output, label).item()
    return {"validation_loss": loss, "accuracy": (output.argmax(1) == label).float().mean().item()}


def test_a_recipe_learns(batches: str, tmp_path: Path) -> None:
    fitted = fit(f"{RECIPES}:linear", dataset=batches, model=str(tmp_path), epochs=4, batch_size=32)
    assert fitted.metrics["accuracy"] > 0.95
    assert fitted.history.epochs[-1]["loss"] < fitted.history.epochs[0]["loss"]


def test_a_reloaded_model_gives_the_same_outputs(batches: str, tmp_path: Path) -> None:
    fit(f"{RECIPES}:linear", dataset=batches, model=str(tmp_path), epochs=2, batch_size=32)
    rows = datasets.blobs(50, seed=2)
    first, second = load_model(str(tmp_path)), load_model(str(tmp_path))
    assert torch.equal(first.output(rows), second.output(rows))
    scores = first.output(rows).cpu().numpy()
    assert (first.predict(rows)["class_"] == scores.argmax(1)).all()
    assert (scores.argmax(1) == rows["label"]).mean() > 0.9


def test_a_model_artifact_has_a_card(batches: str, tmp_path: Path) -> None:
    artifact = fit(
        f"{RECIPES}:linear", dataset=batches, model=str(tmp_path), epochs=2, recipe_params={"learning_rate": 0.1}
    ).artifact
    assert artifact
    card = (tmp_path / artifact.folder / "card.md").read_text()
    for line in (
        r"# tests.trainer.recipes:linear",
        f"| accuracy | {artifact.metrics['accuracy']:.6g} |",
        r"| x | float \[8\], normalized by element |",
        "| label | int64, the label |",
        r"| learning\_rate | 0.1 |",
        f"| dataset | version 1, content {artifact.dataset_hash} |",
        f"| training | 1 workers on {artifact.device}, ",
    ):
        assert line in card
    assert artifact.seconds > 0


def layered(sizes: list[int] | tuple[int, ...], widths: dict[str, int]) -> Recipe:
    model = nn.Sequential(nn.Linear(8, widths["1"]), nn.Linear(widths["1"], 3))
    assert sizes == [8, 3], "a list, in training as in prediction"
    return Recipe(model=model, features="x", label="label", loss=nn.CrossEntropyLoss())


def test_a_recipe_gets_the_parameters_that_the_model_artifact_stores(batches: str, tmp_path: Path) -> None:
    params = {"sizes": (8, 3), "widths": {1: 32}}
    fit(f"{__name__}:layered", dataset=batches, model=str(tmp_path), epochs=1, recipe_params=params)
    model = load_model(str(tmp_path))
    assert model.artifact.recipe_params == {"sizes": [8, 3], "widths": {"1": 32}}
    assert model.recipe.model[0].out_features == 32


@pytest.mark.parametrize("value", [np.int64(2), nn.ReLU, [np.float32(0.5)]])
def test_a_parameter_that_json_does_not_have_is_refused_before_training(
    batches: str, tmp_path: Path, value: object
) -> None:
    message = get_error(batches, tmp_path, epochs=10**9, recipe_params={"limit": value})
    assert message.startswith("fit: recipe_params['limit']: Unable to serialize unknown type: <class '")
    assert message.endswith("convert a number of NumPy with int() or float().")


def test_the_same_seed_gives_the_same_weights(batches: str, tmp_path: Path) -> None:
    def weights(name: str, seed: int) -> str:
        fitted = fit(
            f"{RECIPES}:linear", dataset=batches, model=str(tmp_path / name), epochs=1, batch_size=32, seed=seed
        )
        assert fitted.artifact
        return fitted.artifact.weights_sha256

    assert weights("a", 1) == weights("b", 1) != weights("c", 2)


def test_micro_batches_give_the_result_of_the_whole_batch(batches: str, tmp_path: Path) -> None:
    def losses(micro_batches: int) -> list[float]:
        history = fit(
            f"{RECIPES}:linear",
            dataset=batches,
            model=str(tmp_path),
            epochs=2,
            batch_size=50,
            micro_batches=micro_batches,
        ).history
        return [epoch["loss"] for epoch in history.epochs]

    assert losses(1) == pytest.approx(losses(3), rel=1e-5)


def test_early_stopping_keeps_the_best_weights(batches: str, tmp_path: Path) -> None:
    fitted = fit(
        f"{RECIPES}:linear", dataset=batches, model=str(tmp_path), epochs=200, batch_size=300, early_stopping=2,
        recipe_params={"learning_rate": 1.0},
    )  # fmt: skip
    losses = [epoch["validation_loss"] for epoch in fitted.history.epochs]
    assert fitted.history.stopped_early and len(losses) < 200
    assert fitted.history.best == int(np.argmin(losses)) == len(losses) - 3
    assert validate(str(tmp_path))["validation_loss"] == pytest.approx(min(losses), rel=1e-5) != losses[-1]


def test_the_metrics_of_an_epoch_are_those_of_its_model(batches: str, tmp_path: Path) -> None:
    history = fit(
        f"{RECIPES}:linear", dataset=batches, model=str(tmp_path), epochs=3, batch_size=200, epoch_models=True,
        recipe_params={"learning_rate": 0.01},
    ).history  # fmt: skip
    assert len({epoch["accuracy"] for epoch in history.epochs}) == 3
    for number, epoch in enumerate(history.epochs, start=1):
        metrics = validate(epoch_model_uri(str(tmp_path), number))
        assert metrics == pytest.approx({name: epoch[name] for name in metrics}, rel=1e-5)


def test_a_training_that_resumes_knows_the_models_of_all_its_epochs(batches: str, tmp_path: Path) -> None:
    for epochs in (1, 3):
        models = fit(
            f"{RECIPES}:linear", dataset=batches, model=str(tmp_path / "model"), epochs=epochs, batch_size=200,
            checkpoints=str(tmp_path / "checkpoints"), epoch_models=True,
        ).history.models  # fmt: skip
    uris = [epoch_model_uri(str(tmp_path / "model"), number) for number in (1, 2, 3)]
    assert models == [{"uri": uri, "weights_sha256": load_model(uri).artifact.weights_sha256} for uri in uris]
    assert len({model["weights_sha256"] for model in models}) == 3


def test_an_epoch_whose_monitored_metric_is_nan_is_never_the_best(
    batches: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted = fit(
        f"{RECIPES}:undefined_at_first", dataset=batches, model=str(tmp_path), epochs=4, batch_size=32,
        monitor="metric", recipe_params={"epochs": 2},
    )  # fmt: skip
    values = [epoch["metric"] for epoch in fitted.history.epochs]
    assert np.isnan(values[:2]).all() and values[2:] == [3, 4]
    assert fitted.history.best == 2
    warning = "metric is NaN after epoch 1: the metric is not defined for these rows."
    before, _, after = capsys.readouterr().out.partition(f"WARNING: {warning}")
    assert "epoch 2/4" in after and "epoch 2/4" not in before and warning in fitted.warnings[0]


def test_a_metric_that_is_nan_in_all_epochs_is_an_error(batches: str, tmp_path: Path) -> None:
    message = get_error(
        batches, tmp_path, "undefined_at_first", epochs=5, early_stopping=2, monitor="metric",
        recipe_params={"epochs": 9},
    )  # fmt: skip
    assert "'metric'" in message and "NaN in all 3 epochs" in message and "monitor=" in message
    assert not (tmp_path / "model.json").exists()


def test_a_custom_step_replaces_forward_and_loss(batches: str, tmp_path: Path) -> None:
    history = fit(f"{RECIPES}:weighted_step", dataset=batches, model=str(tmp_path), epochs=3, batch_size=32).history
    assert history.epochs[-1]["loss"] < history.epochs[0]["loss"]


@pytest.mark.parametrize("precision", ["bfloat16"])
def test_mixed_precision_learns_too(batches: str, tmp_path: Path, precision: str) -> None:
    fitted = fit(
        f"{RECIPES}:linear", dataset=batches, model=str(tmp_path), epochs=3, batch_size=32, precision=precision
    )
    assert fitted.metrics["accuracy"] > 0.9


def test_checkpoints_have_the_state_to_resume_from(batches: str, tmp_path: Path) -> None:
    fit(
        f"{RECIPES}:linear", dataset=batches, model=str(tmp_path / "model"), epochs=3, batch_size=32,
        checkpoints=str(tmp_path / "checkpoints"),
    )  # fmt: skip
    (_, _, uri), *_ = index.list_checkpoints(str(tmp_path / "checkpoints"))
    saved = SavedCheckpoint(uri, Checkpoint.load(f"{uri}/{index.INDEX}"))
    assert (saved.index.epoch, saved.index.step, len(saved.read_loop_state()["history"])) == (3, 0, 3)
    for part in ("model", "best", "optimizer.state"):
        assert any(name.endswith("weight") or "weight." in name for name in saved.read_tensors(part)), part


def get_error(batches: str, tmp_path: Path, recipe: str = "linear", **options: object) -> str:
    with pytest.raises(TrainyardError) as error:
        fit(f"{RECIPES}:{recipe}", dataset=batches, model=str(tmp_path), **{"batch_size": 32} | options)
    return str(error.value)


def test_a_batch_larger_than_the_split_is_refused(batches: str, tmp_path: Path) -> None:
    message = get_error(batches, tmp_path, batch_size=601)
    assert "batch_size=601" in message and "'train'" in message and "600 rows" in message


def test_labels_out_of_range_are_refused_before_training(batches: str, tmp_path: Path) -> None:
    message = get_error(batches, tmp_path, recipe_params={"limit": 2})
    assert "classes=2" in message and "'label'" in message and "0 to 2" in message and "classes=3" in message


def test_a_diverging_loss_ends_training_with_its_position(batches: str, tmp_path: Path) -> None:
    message = get_error(batches, tmp_path, recipe="diverging")
    assert "diverged" in message and "epoch" in message and "learning rate" in message


def test_the_error_for_a_recipe_that_cannot_be_imported_names_it(batches: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"recipe 'nowhere\.recipe:net' cannot be imported: ModuleNotFoundError"):
        fit("nowhere.recipe:net", dataset=batches, model=str(tmp_path))


def test_a_function_that_does_not_return_a_recipe_is_refused(batches: str, tmp_path: Path) -> None:
    assert "returned a int" in get_error(batches, tmp_path, recipe="wrong_recipe")


def test_an_invalid_schedule_by_is_refused() -> None:
    with pytest.raises(TrainyardError, match="schedule_by='step' is not valid; write 'update' or 'epoch'"):
        replace(linear(), schedule_by="step")  # type: ignore[arg-type]


def test_an_unknown_metric_to_monitor_is_refused(batches: str, tmp_path: Path) -> None:
    message = get_error(batches, tmp_path, monitor="acuracy")
    assert "monitor='acuracy'" in message and "accuracy" in message


def test_an_altered_weights_file_is_refused(batches: str, tmp_path: Path) -> None:
    fitted = fit(f"{RECIPES}:linear", dataset=batches, model=str(tmp_path), epochs=1, batch_size=32)
    assert fitted.artifact
    file = tmp_path / fitted.artifact.weights[0].path
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(TrainyardError, match="was altered"):
        load_model(str(tmp_path))


def test_a_recipe_that_builds_a_different_network_is_refused(batches: str, tmp_path: Path) -> None:
    fit(f"{RECIPES}:linear", dataset=batches, model=str(tmp_path), epochs=1, batch_size=32)
    with pytest.raises(TrainyardError, match="builds a different network"):
        load_model(str(tmp_path), linear(classes=4))


def test_rows_of_another_shape_are_refused_by_the_model(batches: str, tmp_path: Path) -> None:
    fit(f"{RECIPES}:linear", dataset=batches, model=str(tmp_path), epochs=1, batch_size=32)
    model = load_model(str(tmp_path))
    with pytest.raises(TrainyardError, match=r"column 'x' with shape \[8\].*shape \[9\]"):
        model.output({"x": np.zeros((3, 9), np.float32)})
    with pytest.raises(TrainyardError, match=r"takes column 'x'.*the rows have y"):
        model.output({"y": np.zeros((3, 8), np.float32)})
