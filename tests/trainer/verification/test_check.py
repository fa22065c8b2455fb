"""A model is compared with the trained one before it is published, and once before the first epoch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from onnx import TensorProto, helper, save

from tests.trainer import datasets
from tests.trainer.verification import recipes
from trainyard.errors import TrainyardError
from trainyard.etl.scoring import outputs
from trainyard.schemas.specs.strategies import FSDP, Allreduce, Horovod
from trainyard.trainer.formats import onnx
from trainyard.trainer.formats.mlflow import Scorer
from trainyard.trainer.loop.checks.options import check_memory
from trainyard.trainer.loop.fit import FitResult, fit
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.verification.check import ModelCheck, Output

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


@pytest.mark.slow
def test_the_check_compiles_nothing(batches: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes a minute for a large model; what is compiled is not what a model artifact has."""
    train(batches, tmp_path / "checked", "compiled")
    checked = len(recipes.COMPILED)
    monkeypatch.setattr(ModelCheck, "check_untrained", lambda *_: None)
    monkeypatch.setattr(ModelCheck, "apply", lambda *_: Output(None, "not compared"))
    monkeypatch.setattr(ModelCheck, "check", lambda *_: None)
    torch.compiler.reset()
    train(batches, tmp_path / "bare", "compiled")
    assert len(recipes.COMPILED) == 2 * checked > 0


def test_a_model_of_each_epoch_is_checked(batches: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"'temperature' is 0.729 in the trained model"):
        train(batches, tmp_path, "annealed", epoch_models=True, epochs=50)


def test_gradients_within_forward_reach_a_loaded_model(batches: str, tmp_path: Path) -> None:
    """Those of Spark and MLflow apply it by the same methods."""
    train(batches, tmp_path, "saliency")
    model, rows = load_model(str(tmp_path / "model")), datasets.blobs(5)
    assert model.predict(rows)["prediction"].shape == (5, 3)
    assert model.features("0", rows).shape == (5, 8) and not model.output(rows).requires_grad
    assert Scorer(model).predict(pd.DataFrame({"x": [*rows["x"]]}))["prediction"].shape == (5,)
    schema, _ = outputs.describe_predictions(str(tmp_path / "model"), model.artifact.to_json())
    assert schema.names == ["prediction"]


@pytest.mark.parametrize("kind", ["tied", "interleaved"])
def test_weights_that_are_views_of_one_memory_are_saved_and_restored(batches: str, tmp_path: Path, kind: str) -> None:
    result = train(batches, tmp_path, kind, "views", checkpoints=str(tmp_path / "checkpoints"))
    again = train(batches, tmp_path / "whole", kind, "views", epochs=4)
    resumed = train(batches, tmp_path, kind, "views", epochs=4, checkpoints=str(tmp_path / "checkpoints"))
    assert not result.warnings
    assert resumed.history.epochs[-1]["validation_loss"] == again.history.epochs[-1]["validation_loss"]


def test_parameters_over_one_memory_are_refused_where_each_would_get_its_own() -> None:
    for device, strategy in (("cuda", Allreduce()), ("cpu", FSDP())):
        with pytest.raises(
            TrainyardError, match=r"'encoder\.weight' and 'decoder\.weight' are two parameters over one"
        ):
            check_memory("tied", recipes.views("tied"), strategy, device)
        check_memory("interleaved", recipes.views("interleaved"), strategy, device)
    check_memory("tied", recipes.views("tied"), Allreduce(), "cpu")
    with pytest.raises(TrainyardError, match=r"'layers\.0\.weight' is a view that is not contiguous"):
        check_memory("interleaved", recipes.views("interleaved"), Horovod(), "cpu")


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


@pytest.mark.slow
@pytest.mark.parametrize("format", ["pt2", "onnx"])
def test_a_format_that_computes_something_else_is_refused(batches: str, tmp_path: Path, format: str) -> None:
    error = f"as {format} does not compute what the trained one does: on 8 rows, column 'prediction' differs by "
    with pytest.raises(TrainyardError, match=error):
        train(batches, tmp_path, "exported", formats=(format,))
    assert not [*tmp_path.glob(f"model/*/*.{format}")] and not (tmp_path / "model" / "model.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dropout", "noisy"])
def test_a_format_with_the_same_output_is_written(batches: str, tmp_path: Path, kind: str) -> None:
    """Random numbers of a program are others, so that these are not compared."""
    formats = ("pt2", "onnx", "mlflow") if kind == "dropout" else ("pt2", "mlflow")
    assert list(train(batches, tmp_path, kind, formats=formats).formats) == list(formats)


@pytest.mark.slow
def test_an_mlflow_model_that_computes_something_else_is_refused(
    batches: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict = Scorer.predict
    monkeypatch.setattr(Scorer, "predict", lambda scorer, frame, params=None: predict(scorer, -frame_of(frame)))
    with pytest.raises(TrainyardError, match="as mlflow does not compute what the trained one does"):
        train(batches, tmp_path, "constant", formats=("mlflow",))


def frame_of(frame: Any) -> Any:
    return frame.map(np.asarray)


def test_an_onnx_file_is_read_without_onnxruntime_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    node = helper.make_node("Neg", ["x"], ["prediction"])
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, 2]) for name in ("x", "prediction")]
    graph = helper.make_graph([node], "negate", values[:1], values[1:])
    save(helper.make_model(graph), tmp_path / "model.onnx")
    rows = np.ones((3, 2), np.float32)
    assert (onnx.predict(tmp_path / "model.onnx", {"x": rows})["prediction"] == -rows).all()
