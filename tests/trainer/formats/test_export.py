"""Model artifacts in other formats, read by their own libraries: the same predictions from the same rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch

from tests.trainer import datasets, heads
from trainyard.cli.main import main
from trainyard.errors import TrainyardError, UnavailableError
from trainyard.files import retries, storage
from trainyard.schemas.datasets.manifest import Column
from trainyard.trainer.formats.export import check_formats, export
from trainyard.trainer.formats.mlflow import Scorer
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import TrainedModel, load_model

RECIPES = "tests.trainer.recipes"
ROWS = (1, 2, 65)


def images(rows: int, seed: int = 0) -> datasets.Columns:
    rng = np.random.default_rng(seed)
    return {"image": rng.random((rows, 1, 8, 8), dtype=np.float32), "label": rng.integers(0, 10, rows)}


def mixed(rows: int, seed: int = 0) -> datasets.Columns:
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (rows, 2, 4), dtype=np.uint8),
        "city": rng.integers(0, 5, rows),
        "flag": rng.random(rows) < 0.5,
        "label": rng.integers(0, 2, rows),
    }


MODELS = {
    f"{RECIPES}:linear": datasets.blobs,
    "digits.recipe:convnet": images,
    f"{RECIPES}:mixed": mixed,
    "tests.trainer.heads:two": heads.rows,
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(recipe, marks=() if recipe.endswith("mixed") else pytest.mark.full) for recipe in MODELS],
)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """Return a model, and a function that builds rows for it."""
    folder = tmp_path_factory.mktemp("trained")
    rows = MODELS[request.param]
    batches = datasets.write(folder / "dataset", {"train": rows(200)})
    fit(request.param, dataset=batches, model=str(folder / "model"), epochs=1, batch_size=50)
    return str(folder / "model"), rows


def inputs(model: TrainedModel, rows: datasets.Columns) -> datasets.Columns:
    return {column.name: rows[column.name] for column in model.artifact.inputs}


def assert_same(result: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert list(result) == list(expected)
    for name, values in expected.items():
        assert np.asarray(result[name]) == pytest.approx(values, rel=1e-5, abs=1e-6)
        assert np.asarray(result[name]).dtype == values.dtype


@pytest.mark.slow
def test_onnxruntime_predicts_the_same(trained: tuple[str, Any], tmp_path: Path) -> None:
    uri, rows = trained
    export(uri, "onnx", str(tmp_path / "model.onnx"))
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    names = [output.name for output in session.get_outputs()]
    model = load_model(uri)
    assert [i.name for i in session.get_inputs()] == [c.name for c in model.artifact.inputs]
    assert {i.shape[0] for i in (*session.get_inputs(), *session.get_outputs())} == {"rows"}
    for count in ROWS:
        columns = inputs(model, rows(count, seed=1))
        assert_same(dict(zip(names, session.run(names, columns), strict=True)), model.predict(columns))


def test_a_program_of_torch_export_predicts_the_same(trained: tuple[str, Any], tmp_path: Path) -> None:
    uri, rows = trained
    export(uri, "pt2", str(tmp_path / "model.pt2"))
    program, model = torch.export.load(tmp_path / "model.pt2").module(), load_model(uri)
    for count in ROWS:
        columns = inputs(model, rows(count, seed=1))
        result = program({name: torch.from_numpy(values) for name, values in columns.items()})
        assert_same({name: tensor.numpy() for name, tensor in result.items()}, model.predict(columns))


@pytest.mark.slow
def test_mlflow_scores_a_frame_the_same(
    trained: tuple[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())  # MLflow adds the code of the model
    uri, rows = trained
    export(uri, "mlflow", str(tmp_path / "model"))
    scorer, model = mlflow.pyfunc.load_model(str(tmp_path / "model")), load_model(uri)
    for count in ROWS:
        columns = inputs(model, rows(count, seed=1))
        result = scorer.predict(frame(columns))
        assert_same({name: np.stack([*result[name].to_numpy()]) for name in result}, model.predict(columns))


def frame(columns: datasets.Columns) -> pd.DataFrame:
    """Return a frame as `toPandas` does: a tensor is a flat array in each row."""
    return pd.DataFrame({k: v if v.ndim == 1 else list(v.reshape(len(v), -1)) for k, v in columns.items()})


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Scorer:
    folder = tmp_path_factory.mktemp("scored")
    batches = datasets.write(folder / "dataset", {"train": mixed(100)})
    fit(f"{RECIPES}:mixed", dataset=batches, model=str(folder / "model"), epochs=1, batch_size=50)
    return Scorer(load_model(str(folder / "model")))


def test_mlflow_refuses_a_number_that_the_type_of_the_column_cannot_represent(scorer: Scorer) -> None:
    rows = frame({name: values for name, values in mixed(3).items() if name != "label"})
    rows["image"] = [values.astype(np.int64) for values in rows["image"]]
    assert len(scorer.predict(rows)) == 3
    rows["image"][1][0] = 300
    with pytest.raises(TrainyardError, match="column 'image' has the value 300, which its type in the training, uint8"):
        scorer.predict(rows)


def test_mlflow_scores_a_frame_without_rows(scorer: Scorer) -> None:
    rows = frame({name: values for name, values in mixed(3).items() if name != "label"})
    assert scorer.predict(rows[:0]).shape == (0, 2)


@pytest.mark.full
@pytest.mark.slow
def test_an_mlflow_model_includes_the_code_that_it_needs(tmp_path: Path) -> None:
    batches = datasets.write(tmp_path / "dataset", {"train": datasets.blobs(100)})
    fit(f"{RECIPES}:linear", dataset=batches, model=str(tmp_path / "model"), epochs=1, batch_size=50)
    export(str(tmp_path / "model"), "mlflow", str(tmp_path / "served"))
    rows = datasets.blobs(20, seed=1)
    frame({"x": rows["x"]}).to_json(tmp_path / "rows.json")
    program = (
        "import json, sys, mlflow.pyfunc, pandas\n"
        "prediction = mlflow.pyfunc.load_model(sys.argv[1]).predict(pandas.read_json(sys.argv[2]))\n"
        "print(json.dumps([prediction['class_'].tolist(), sys.modules['trainyard.trainer'].__file__]))"
    )
    command = [sys.executable, "-I", "-c", program, str(tmp_path / "served"), str(tmp_path / "rows.json")]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    classes, file = json.loads(ran.stdout)
    assert classes == load_model(str(tmp_path / "model")).predict(rows)["class_"].tolist()
    assert file == str(tmp_path / "served/code/trainyard/trainer/__init__.py")


@pytest.mark.slow
def test_formats_are_written_beside_the_weights(tmp_path: Path) -> None:
    batches = datasets.write(tmp_path / "dataset", {"train": datasets.blobs(100)})
    for _ in range(2):
        fitted = fit(
            f"{RECIPES}:linear", dataset=batches, model=str(tmp_path / "model"), epochs=1, batch_size=50,
            formats=("pt2", "mlflow"),
        )  # fmt: skip
    assert fitted.artifact
    folder = tmp_path / "model" / fitted.artifact.folder
    assert fitted.formats == {"pt2": f"{folder}/model.pt2", "mlflow": f"{folder}/mlflow"}
    written = {"model.json", "card.md", "mlflow", "model.pt2", "weights.safetensors"}
    assert {path.name for path in folder.iterdir()} == written


def fit_with_errors(folder: Path, monkeypatch: pytest.MonkeyPatch, function: str, count: int) -> dict[str, str]:
    """Train with a storage that fails `count` times where it writes the MLflow model."""
    batches = datasets.write(folder / "dataset", {"train": datasets.blobs(100)})
    original, errors = getattr(storage, function), [OSError("standby")] * count

    def fail_at_first(*arguments: Any) -> Any:
        if errors and "/mlflow" in arguments[0]:
            raise errors.pop()
        return original(*arguments)

    monkeypatch.setattr(storage, function, fail_at_first)
    return fit(
        f"{RECIPES}:linear", dataset=batches, model=str(folder / "model"), epochs=1, batch_size=50, formats=("mlflow",)
    ).formats


@pytest.mark.slow
@pytest.mark.parametrize(
    "function", ["move", *(pytest.param(name, marks=pytest.mark.full) for name in ("replace", "remove"))]
)
def test_an_export_continues_after_an_error_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    monkeypatch.setattr(retries, "MAX_WAIT_SECONDS", 0.01)
    assert Path(fit_with_errors(tmp_path, monkeypatch, function, 1)["mlflow"], "MLmodel").is_file()


@pytest.mark.slow
def test_a_storage_that_does_not_answer_an_export_may_answer_another_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "RETRY_SECONDS", 0.0)
    with pytest.raises(UnavailableError, match=r"cannot write .*/mlflow.*standby"):
        fit_with_errors(tmp_path, monkeypatch, "replace", 100)


def test_a_model_that_cannot_be_traced_does_not_become_current(tmp_path: Path) -> None:
    batches = datasets.write(tmp_path / "dataset", {"train": datasets.blobs(100)})
    with pytest.raises(
        TrainyardError, match=r"(?s)torch.export cannot trace.*the previous model artifact stays current"
    ):
        fit(
            f"{RECIPES}:untraceable", dataset=batches, model=str(tmp_path / "model"), epochs=1, batch_size=50,
            formats=("pt2",),
        )  # fmt: skip
    (weights,) = (tmp_path / "model").iterdir()
    assert weights.is_dir()


def test_missing_packages_of_a_format_are_reported_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = datasets.write(tmp_path / "dataset", {"train": datasets.blobs(100)})
    monkeypatch.setitem(sys.modules, "onnxscript", None)  # makes its import fail
    with pytest.raises(TrainyardError, match=r"'onnx' needs onnxscript.*Install airflow-trainyard\[formats\]"):
        fit(f"{RECIPES}:linear", dataset=batches, model=str(tmp_path / "model"), formats=("onnx",))
    with pytest.raises(TrainyardError, match="format 'keras' is unknown; write one of mlflow, onnx, pt2"):
        fit(f"{RECIPES}:linear", dataset=batches, model=str(tmp_path / "model"), formats=("keras",))
    assert not (tmp_path / "model").exists()


def test_variable_length_columns_are_refused() -> None:
    words = Column(name="words", kind="list", type="int64", shape=())
    with pytest.raises(TrainyardError, match="'pt2' does not support the variable-length column 'words'"):
        check_formats(["pt2"], [words])


@pytest.mark.full
@pytest.mark.slow
def test_the_cli_exports_a_model(trained: tuple[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri, _ = trained
    assert main(["model", "export", uri, "pt2", str(tmp_path / "model.pt2")]) == 0
    assert torch.export.load(tmp_path / "model.pt2")
    assert main(["model", "export", str(tmp_path), "pt2", str(tmp_path / "again.pt2")]) == 1
    assert "is not a model: it has no model.json" in capsys.readouterr().err
    (tmp_path / "precious").mkdir()
    assert main(["model", "export", uri, "mlflow", str(tmp_path / "precious")]) == 1
    assert "precious exists already; choose another output" in capsys.readouterr().err
