"""Parsing a DAG imports neither Spark nor torch, and shows what is wrong as Airflow does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

DAG = """
from airflow.sdk import DAG
from trainyard.operators import EvaluateOperator, ExportOperator, PredictOperator, TrainOperator

with DAG("toy", schedule=None, params={"epochs": 3}):
    export = ExportOperator(task_id="export", prepare="toy.prepare:rows", source="/in", batches="toy/batches")
    train = TrainOperator(
        task_id="train", recipe="toy.recipe:network", batches=export.output, model="toy/model", workers=2,
        epochs="{{ params.epochs }}", seed="{{ ti.try_number }}", conf={"spark.driver.memory": "2g"})
    EvaluateOperator(task_id="evaluate", model=train.output, batches=export.output, metrics=["accuracy"])
    PredictOperator(task_id="predict", model=train.output, source="/in", keys=["id"], output="toy/out")
"""


def test_nothing_heavy_is_imported(python: Callable[..., Any], dag_file: Path) -> None:
    dag_file.write_text(DAG)
    heavy = ["torch", "pyspark", "pyarrow", "numpy", "pandas", "airflow.providers.apache.spark", "etl", "trainer"]
    done = python("-c", f"import sys, toy.dag; print([name for name in {heavy!r} if name in sys.modules])")
    assert done.stdout.strip().splitlines()[-1:] == ["[]"], done.stderr


def test_plan_prints_what_would_be_submitted(python: Callable[..., Any], dag_file: Path, tmp_path: Path) -> None:
    dag_file.write_text(DAG)
    done = python("-m", "trainyard", "plan", "toy")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["stage", "master", "queue", "label", "containers", "archive"]
    assert [line.split()[:2] for line in lines[1:5]] == [
        [stage, "local[2]"] for stage in ("export", "train", "evaluate", "predict")
    ]
    assert "1 driver + 2 ranks" in lines[2]
    train = done.stdout.partition("train: TrainOperator 'train'")[2].partition("evaluate: Evaluate")[0]
    assert f"batches = file://{tmp_path}/s/toy/batches" in train
    assert '"epochs": "3"' in train
    assert '"seed": "{{ ti.try_number }}"' in train
    assert "--conf spark.driver.memory=2g" in train
    assert not (tmp_path / "s").exists()


def test_plan_of_a_dag_that_fails_to_parse_ends_with_the_reason(python: Callable[..., Any], dag_file: Path) -> None:
    dag_file.write_text(DAG.replace("workers=2", "workers=-2"))
    done = python("-m", "trainyard", "plan", "toy")
    assert done.returncode == 1
    assert "TrainOperator 'train': workers=-2: Input should be greater than 0." in done.stderr
