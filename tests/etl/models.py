"""Small models trained on a few blobs, and the same blobs as DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.trainer import datasets
from trainyard.schemas.events import EventLog
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.trainer.loop.fit import fit


def trained(directory: Path, recipe: str, **params: Any) -> str:
    """The URI of a model of the recipe called `recipe`, after one epoch: good, not perfect."""
    batches = datasets.write(directory / "dataset", {"train": datasets.blobs(400)})
    uri = str(directory / "model")
    path = f"tests.trainer.recipes:{recipe}"
    fit(path, recipe_params=params, dataset=batches, model=uri, epochs=1, batch_size=100)
    return uri


def frame(spark: Any, rows: datasets.Columns) -> Any:
    """Rows with a key, and the column "of" that is their number modulo 2, as a DataFrame."""
    pairs = zip(rows["x"], rows["label"], strict=True)
    data = [(f"k{i}", i % 2, [None if v is None else float(v) for v in x], int(y)) for i, (x, y) in enumerate(pairs)]
    return spark.createDataFrame(data, "key string, of int, x array<float>, label bigint").repartition(3)


def task_key(directory: Path) -> TaskKey:
    return TaskKey(dag_id="d", run_id="r", task_id="t", directory=str(directory / "run"))


def log(spec: JobSpec) -> EventLog:
    return EventLog(spec.task_key.directory, "t", "driver")
