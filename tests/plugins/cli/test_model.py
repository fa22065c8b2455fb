"""`trainyard model` finds the recipes of models in the DAGs folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch

from tests.trainer import datasets
from trainyard import storage
from trainyard.cli.main import main
from trainyard.schemas import model_artifact
from trainyard.trainer.loop.fit import fit

RECIPE = "from tests.trainer.recipes import linear\n"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model whose recipe is in the package `flights` of the folder `dags`, which is not on the path of imports."""
    (tmp_path / "dags" / "flights").mkdir(parents=True)
    (tmp_path / "dags" / "flights" / "recipe.py").write_text(RECIPE)
    dataset = datasets.write(tmp_path / "dataset", {"train": datasets.blobs(100)})
    uri = str(tmp_path / "model")
    fit("tests.trainer.recipes:linear", dataset=dataset, model=uri, epochs=1, batch_size=50)
    artifact = model_artifact.read_current(uri).model_copy(update={"recipe": "flights.recipe:linear"})
    storage.replace(f"{uri}/model.json", artifact.to_json().encode())
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("flights", "flights.recipe"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return uri


def test_a_recipe_in_the_dags_folder_of_airflow_is_found(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow import settings

    monkeypatch.setattr(settings, "DAGS_FOLDER", str(tmp_path / "dags"))
    assert main(["model", "export", model, "pt2", str(tmp_path / "model.pt2")]) == 0
    assert torch.export.load(tmp_path / "model.pt2")


def test_a_recipe_in_another_folder_is_found_by_an_option(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "export", model, "pt2", str(tmp_path / "model.pt2")]) == 1
    error = capsys.readouterr().err
    assert "No module named 'flights'" in error
    assert error.endswith("If it is in a folder of DAGs, write the folder as --dags-folder.\n")
    folder = os.path.relpath(tmp_path / "dags")
    assert main(["model", "export", model, "pt2", str(tmp_path / "model.pt2"), "--dags-folder", folder]) == 0
