"""The model of a loop of the user's own goes through all stages, as that of a recipe does."""

from __future__ import annotations

import json
import os
import random
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from trainyard.schemas import model_artifact
from trainyard.schemas.runs import run_record

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
FILES = {
    "own/__init__.py": "",
    "own/prepare.py": """
from pyspark.sql import functions as F


def table(spark, source):
    size = F.array(F.col("width").cast("float"), F.col("length").cast("float"))
    return source.select(size.alias("size"), F.col("kind").cast("bigint"), F.monotonically_increasing_id().alias("key"))
""",
    "own/net.py": """
from torch import nn
from trainyard.trainer import Recipe


def net() -> Recipe:
    return Recipe(
        model=nn.Linear(2, 3), features="size", label="kind", classes=3, normalize="all",
        predict=lambda output: {"kind_": output.argmax(1)},
    )
""",
    "own/loop.py": """
import torch
from own.net import net
from torch.nn import functional
from trainyard.trainer import Run


def train(run: Run, rate: float = 0.1):
    model = run.model(net)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    run.track(model=model, optimizer=optimizer)
    for batch in run.steps():
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(batch), batch["kind"])
        batch.backward(loss)
        optimizer.step()
        batch.report(loss=loss)
    run.publish(model)
""",
    "own/dag.py": """
from airflow.sdk import DAG
from trainyard.operators import EvaluateOperator, ExportOperator, PredictOperator, PromoteOperator, TrainOperator

with DAG("own", schedule=None):
    data = ExportOperator(task_id="export", prepare="own.prepare:table", source="own.json")
    model = TrainOperator(
        task_id="train", loop="own.loop:train", dataset=data.output, workers=2, epochs=20, batch_size=32
    )
    evaluation = EvaluateOperator(task_id="evaluate", model=model.output, split="test", metrics=["accuracy"])
    champion = PromoteOperator(
        task_id="promote", evaluation=evaluation.output, metric="accuracy", champion="own/champion",
        required={"accuracy": 0.9},
    )
    PredictOperator(
        task_id="predict", model=champion.output, prepare="own.prepare:table", source="own.json",
        output="own/predictions",
    )
""",
}


def test_the_model_of_a_loop_is_evaluated_promoted_and_predicts(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / "dags" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dags" / name).write_text(text)
    rows = [
        {"width": random.Random(i).gauss(i % 3, 0.2), "length": random.Random(-i).gauss(i % 3, 0.2), "kind": i % 3}
        for i in range(600)
    ]
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage/own.json").write_text("\n".join(map(json.dumps, rows)))
    environment = os.environ | {"TRAINYARD_HOME": str(tmp_path), "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags")}
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", ". stack/local/env.sh && exec airflow dags test own"],
        cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout[-7000:]
    [directory] = (tmp_path / "storage/runs/own").iterdir()
    outputs = {record.task_key.task: record.output for record in run_record.read_run(str(directory))}
    assert outputs["train"]["workers"] == 2
    assert outputs["evaluate"]["metrics"]["accuracy"] > 0.9
    champion = model_artifact.read_current(str(tmp_path / "storage/own/champion"))
    assert champion.weights_sha256 == outputs["train"]["weights_sha256"]
    predicted = pd.read_parquet(tmp_path / "storage/own/predictions")
    assert len(predicted) == 600
    assert (predicted["kind_"] == predicted["kind"]).mean() > 0.9
