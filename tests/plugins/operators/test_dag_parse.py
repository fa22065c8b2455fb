"""Parsing a DAG imports neither Spark nor torch, and reports errors as Airflow does."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainyard.schemas.model_artifact import ModelArtifact

pytestmark = pytest.mark.airflow

DAG = """
from airflow.sdk import DAG
from trainyard.operators import EvaluateOperator, ExportOperator, PredictOperator, ScriptOperator, TrainOperator

with DAG("toy", schedule=None, params={"epochs": 3}):
    export = ExportOperator(task_id="export", prepare="toy.prepare:rows", source="/in", dataset="toy/dataset")
    train = TrainOperator(
        task_id="train", recipe="toy.recipe:network", dataset=export.output, model="toy/model", workers=2,
        epochs="{{ params.epochs }}", seed="{{ ti.try_number }}", conf={"spark.driver.memory": "2g"})
    EvaluateOperator(task_id="evaluate", model=train.output, dataset=export.output, metrics=["accuracy"])
    PredictOperator(task_id="predict", model=train.output, source="/in", keys=["id"], output="toy/out")
    ScriptOperator(
        task_id="script", script="toy.recipe", arguments=["--data", export.output, "--epochs", "{{ params.epochs }}"],
        workers=2)
"""


def test_parsing_a_dag_imports_no_heavy_package(python: Callable[..., Any], dag_file: Path) -> None:
    dag_file.write_text(DAG)
    heavy = [
        "torch",
        "pyspark",
        "pyarrow",
        "numpy",
        "pandas",
        "airflow.providers.apache.spark.hooks.spark_submit",
        "trainyard.etl",
        "trainyard.trainer",
    ]
    done = python("-c", f"import sys, toy.dag; print([name for name in {heavy!r} if name in sys.modules])")
    assert done.stdout.strip().splitlines()[-1:] == ["[]"], done.stderr


def test_plan_prints_every_application(python: Callable[..., Any], dag_file: Path, tmp_path: Path) -> None:
    dag_file.write_text(DAG)
    done = python("-m", "trainyard", "plan", "toy")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["stage", "master", "queue", "label", "containers", "archive"]
    assert {line.split()[0]: line.split()[1] for line in lines[1:6]} == dict.fromkeys(
        ("export", "train", "script", "evaluate", "predict"), "local[2]"
    )
    groups = [line.split()[0] for line in lines if "1 driver + 2 workers" in line]
    assert sorted(groups) == ["script", "train"]
    script = done.stdout.partition("script: ScriptOperator 'script'")[2]
    assert f'arguments = ["--data", "file://{tmp_path}/s/toy/dataset", "--epochs", "3"]' in script
    train = done.stdout.partition("train: TrainOperator 'train'")[2].partition("evaluate: Evaluate")[0]
    assert f"dataset = file://{tmp_path}/s/toy/dataset" in train
    assert '"epochs": "3"' in train
    assert '"seed": "{{ ti.try_number }}"' in train
    assert "--conf spark.driver.memory=2g" in train
    assert not (tmp_path / "s").exists()


def test_plan_of_a_dag_that_fails_to_parse_prints_the_error(python: Callable[..., Any], dag_file: Path) -> None:
    dag_file.write_text(DAG.replace("workers=2", "workers=-2"))
    done = python("-m", "trainyard", "plan", "toy")
    assert done.returncode == 1
    assert "TrainOperator 'train': workers=-2: write a number greater than 0." in done.stderr


def test_an_evaluation_ships_the_recipe_of_its_model(
    python: Callable[..., Any], dag_file: Path, tmp_path: Path
) -> None:
    dag_file.write_text(DAG)
    recipe = dag_file.parents[1] / "elsewhere"
    recipe.mkdir()
    (recipe / "recipe.py").write_text("network = None\n")
    model = tmp_path / "s" / "toy" / "model"
    model.mkdir(parents=True)
    (model / "model.json").write_text(
        ModelArtifact(
            recipe="elsewhere.recipe:network", recipe_params={}, inputs=(), label=None, normalization={}, weights=(),
            weights_sha256="0", dataset="", dataset_hash="0", dataset_version=1, metrics={}, epochs=1, workers=1,
            seconds=1.0, device="cpu", application="", written_at="", versions={},
        ).to_json()
    )  # fmt: skip
    done = python("-m", "trainyard", "plan", "toy", "-o", "json")
    plans = {item["task_id"]: item["plan"] for item in json.loads(done.stdout)}
    archive = zipfile.ZipFile(plans["evaluate"]["py_files"][0])
    assert "elsewhere/recipe.py" in archive.namelist()
