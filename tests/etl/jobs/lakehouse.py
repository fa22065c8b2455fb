"""Exports of lakehouse tables, in a session that has their jars and settings from its start."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stack.hadoop.jars import fetch_jars
from trainyard.etl import register
from trainyard.etl.jobs.exporting import export as exports
from trainyard.schemas.results import DatasetResult
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.source import Source
from trainyard.schemas.specs.task_key import TaskKey

COMPARED = {"fingerprint": "source=1 tables=? code=2 options=3", "skip_unchanged": True}
"""Fields of an export that writes nothing if the version of its table is that of the dataset."""


@contextmanager
def use_session(request: pytest.FixtureRequest, pom: Path, settings: Mapping[str, str]) -> Iterator[Any]:
    """Start the session of the tests with the jars of a pom, which Maven fetches, and with these settings."""
    jars = ",".join(map(str, sorted(fetch_jars(pom).glob("*.jar"))))
    options = [
        word for name, value in {"spark.jars": jars, **settings}.items() for word in ("--conf", f"{name}={value}")
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", shlex.join([*options, "pyspark-shell"]))
        yield request.getfixturevalue("spark")


def export(session: Any, folder: Path, source: dict[str, Any], **fields: Any) -> DatasetResult:
    """Export a source to `dataset` in a folder."""
    key = TaskKey(dag_id="d", run_id="r", task_id="export", directory=str(folder / "run"))
    fields = {"prepare": "tests.etl.prepares:identity"} | fields
    spec = ExportSpec(
        task_key=key, dataset=str(folder / "dataset"), source=Source.model_validate(source), splits={"train": 1.0},
        shards=2, **fields,
    )  # fmt: skip
    return exports.run(session, spec, EventLog(key.directory, key.task, "driver"))


def read_ids(session: Any, folder: Path) -> list[int]:
    """Return the ids in the exported dataset, sorted."""
    register(session)
    return sorted(row["id"] for row in session.read.format("trainyard").load(str(folder / "dataset")).collect())
