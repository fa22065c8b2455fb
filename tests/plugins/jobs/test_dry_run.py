"""What the tasks of a DAG would submit, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG
from fsspec.implementations.memory import MemoryFileSystem

from trainyard import storage
from trainyard.jobs import dry_run
from trainyard.operators import EvaluateOperator


class Unreachable(MemoryFileSystem):  # type: ignore[misc]
    """A NameNode that does not answer."""

    def exists(self, path: str, **_: Any) -> bool:
        """Not to be known."""
        raise OSError("no NameNode answers")


def test_storage_that_cannot_be_read_is_a_problem_of_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_REGISTERED", {"hdfs://far": Unreachable()})
    with DAG("toy") as dag:
        EvaluateOperator(task_id="evaluate", model="hdfs://far/model", dataset="toy/dataset", metrics=["accuracy"])
    (stage,) = dry_run.plan_dag(dag)
    assert stage.problem == (
        "EvaluateOperator 'evaluate': the storage of connection 'trainyard_default' cannot be read: no NameNode answers"
    )
