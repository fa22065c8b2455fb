"""Assets of outputs: one name for one storage, known while the DAG is parsed."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import airflow.sdk
import pytest
from airflow.sdk import DAG, Asset
from airflow.sdk.execution_time.context import OutletEventAccessors

from tests.plugins.results import output
from trainyard.operators import ExportOperator, PredictOperator, PromoteOperator, TrainOperator, asset
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey

DAY, LONG = "2026-01-05", "x" * 251
EXPORT = {"task_id": "t", "prepare": "a.b:c", "source": "/in", "dataset": "d"}
PREDICT = {"task_id": "t", "model": "m", "source": "/in", "output": "p"}


def train(**options: Any) -> TrainOperator:
    return TrainOperator(**({"task_id": "t", "recipe": "a.b:c", "dataset": "d", "model": "toy/model"} | options))


def test_the_asset_of_the_default_connection_has_the_name_of_the_output() -> None:
    assert train().outlets == [Asset("toy/model")] == [asset("toy/model")]


def test_outputs_of_two_connections_are_two_assets() -> None:
    [first], [second] = train(conn_id="east").outlets, train(conn_id="west").outlets
    assert first.name == first.uri == "trainyard://east/toy/model"
    assert (first, second) == (asset("toy/model", conn_id="east"), asset("toy/model", conn_id="west"))


@pytest.mark.parametrize("name", ["hdfs://nn/toy/model", "/data/toy/model"])
def test_a_uri_is_the_same_asset_for_every_connection(name: str) -> None:
    assert train(conn_id="east", model=name).outlets == train(model=name).outlets == [Asset(name)]


@pytest.mark.parametrize("name", ["toy/model/", "toy//model", "toy/model//"])
def test_slashes_that_change_nothing_make_no_other_asset(name: str) -> None:
    assert train(model=name).outlets == [Asset("toy/model")]


@pytest.mark.parametrize("name", ["hdfs://nn/toy/model/", "file:///toy/model/"])
def test_the_slashes_of_a_uri_stay(name: str) -> None:
    assert train(model=name).outlets == [Asset(name.rstrip("/"))]


def test_letters_that_airflow_refuses_in_a_uri_are_encoded() -> None:
    """Airflow would drop all DAGs of the file, without an import error."""
    output = asset("toy/modèle")
    assert (output.name, output.uri) == ("toy/modèle", "toy/mod%C3%A8le")


def test_every_operator_names_its_asset_by_its_connection() -> None:
    export = ExportOperator(task_id="e", prepare="a.b:c", source="/in", dataset="toy/d", conn_id="east")
    promote = PromoteOperator(task_id="p", evaluation="e", champion="toy/c", metric="accuracy", conn_id="east")
    assert export.outlets == [asset("toy/d", conn_id="east")]
    assert promote.outlets == [asset("toy/c", conn_id="east")]


@pytest.mark.parametrize("options", [{"model": "toy/{{ ds }}"}, {"conn_id": "{{ params.region }}"}])
def test_a_name_that_is_known_when_the_task_runs_has_no_asset(options: dict[str, Any]) -> None:
    assert train(**options).outlets == []


def test_the_result_is_published_to_the_asset_of_the_connection_and_to_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    task, events = train(conn_id="east", outlets=[Asset("another")]), OutletEventAccessors()
    key = TaskKey(dag_id="d", run_id="r", task_id="t", directory=f"file://{tmp_path}")
    record = RunRecord(
        task_key=key, job="train", started_at=1.0, seconds=1.0, application="a", status="succeeded",
        output=output("train", metrics={"recall": math.nan, "loss": 0.5}, seconds={"forward": math.inf}),
    )  # fmt: skip
    result = task._publish_result({"outlet_events": events}, key, record)  # type: ignore[typeddict-item]
    expected = output("train", metrics={"recall": None, "loss": 0.5}, seconds={"forward": None})
    assert result == expected, "Airflow refuses numbers that JSON does not have"
    extra = {name: value for name, value in expected.items() if name != "uri"}
    assert len(events) == 1 and events[asset("toy/model", conn_id="east")].extra == extra


@pytest.mark.parametrize(
    ("build", "job", "found", "keys"),
    [
        (partial(ExportOperator, **EXPORT, partition=DAY), "export", {}, {DAY}),
        (partial(ExportOperator, **EXPORT, partition=20260105), "export", {}, {"20260105"}),
        (partial(ExportOperator, **EXPORT), "export", {}, set()),
        (
            partial(PredictOperator, **PREDICT, partition_by="day"),
            "predict",
            {"partitions": [DAY, " ", "x" * 251]},
            {DAY},
        ),
        (partial(PredictOperator, **PREDICT), "predict", {}, set()),
    ],
)
@pytest.mark.parametrize("timetable", [None, getattr(airflow.sdk, "PartitionedAtRuntime", None)])  # since Airflow 3.3
def test_events_name_the_written_partitions_if_the_dag_says_that_its_runs_have_them(
    build: Callable[[], Any], job: str, found: dict[str, Any], keys: set[str], timetable: Any, tmp_path: Any
) -> None:
    task = build()
    DAG("d", schedule=timetable and timetable()).add_task(task)
    events, key = OutletEventAccessors(), TaskKey(dag_id="d", run_id="r", task_id="t", directory=f"file://{tmp_path}")
    record = RunRecord(
        task_key=key, job=job, started_at=1.0, seconds=1.0, application="a", status="succeeded",
        output=output(job, **found),
    )  # fmt: skip
    task._publish_result({"outlet_events": events}, key, record)
    assert getattr(events[task.outlets[0]], "partition_keys", set()) == (keys if timetable else set())
