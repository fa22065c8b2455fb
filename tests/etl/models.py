"""Small models that are trained on blobs, and the same blobs as DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.trainer import datasets
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.trainer.loop.fit import fit


def train(directory: Path, recipe: str, **params: Any) -> str:
    """Train a recipe for one epoch, after which it is good but not perfect; return the URI of the model."""
    dataset = datasets.write(directory / "dataset", {"train": datasets.blobs(400)})
    uri = str(directory / "model")
    fit(f"tests.trainer.recipes:{recipe}", recipe_params=params, dataset=dataset, model=uri, epochs=1, batch_size=100)
    return uri


def train_total(frame: Any, directory: Path, variable_length: str = "", **params: Any) -> str:
    """Train `tests.etl.recipes:total` on a DataFrame, which does not change it; return the URI of the model."""
    dataset, uri = str(directory / "dataset"), str(directory / "model")
    frame.write.format("trainyard").mode("overwrite").option("variableLength", variable_length).save(dataset)
    fit("tests.etl.recipes:total", recipe_params=params, dataset=dataset, model=uri, epochs=1, batch_size=2)
    return uri


def make_frame(spark: Any, rows: datasets.Columns) -> Any:
    """Return rows as a DataFrame, with a key, and with their number modulo 2 as the column "of"."""
    pairs = zip(rows["x"], rows["label"], strict=True)
    data = [(f"k{i}", i % 2, [None if v is None else float(v) for v in x], int(y)) for i, (x, y) in enumerate(pairs)]
    return spark.createDataFrame(data, "key string, of int, x array<float>, label bigint").repartition(3)


def make_task_key(directory: Path) -> TaskKey:
    return TaskKey(dag_id="d", run_id="r", task_id="t", directory=str(directory / "run"))


def make_log(spec: JobSpec) -> EventLog:
    return EventLog(spec.task_key.directory, "t", "driver")
