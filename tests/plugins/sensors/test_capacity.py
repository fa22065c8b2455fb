"""The sensor that waits for room, in its worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from trainyard.compat import import_dag_bag
from trainyard.errors import UnavailableError
from trainyard.hooks.trainyard import Settings, TrainyardHook
from trainyard.operators import TrainOperator
from trainyard.sensors import CapacitySensor


def test_a_failover_neither_fails_the_sensor_nor_starts_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [UnavailableError("no active ResourceManager answers"), None]

    def make_trigger(self: CapacitySensor, context: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(CapacitySensor, "_make_trigger", make_trigger)
    sensor = CapacitySensor(task_id="room", stage="train", deferrable=False)
    assert [sensor.poke({}), sensor.poke({})] == [False, True]  # type: ignore[typeddict-item]


@pytest.mark.parametrize("error", [UnavailableError("there is no valid ticket"), OSError("no NameNode answers")])
def test_the_sensor_asks_again_where_the_stage_cannot_be_planned_now(
    dag_file: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(hook: TrainyardHook) -> Settings:
        raise error

    monkeypatch.setattr(TrainyardHook, "get_conn", refuse)
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    sensor = CapacitySensor(task_id="room", stage="train", deferrable=False, dag=dag)
    TrainOperator(task_id="train", recipe="toy.recipe:network", dataset="toy/dataset", model="toy/model", dag=dag)
    assert sensor.poke({"params": {}}) is False  # type: ignore[typeddict-item]


DAG_FILE = """
from airflow.sdk import DAG
from trainyard.operators import TrainOperator
from trainyard.sensors import CapacitySensor

with DAG("toy", schedule=None):
    room = CapacitySensor(task_id="room", stage="{stage}")
    room >> TrainOperator(task_id="train", recipe="toy.recipe:network", dataset="toy/dataset", model="toy/model")
"""


@pytest.mark.airflow
@pytest.mark.parametrize(
    ("stage", "problem"), [("nope", "is not a task of this DAG"), ("room", "submits no application")]
)
def test_a_stage_that_cannot_be_waited_for_is_an_import_error(dag_file: Path, stage: str, problem: str) -> None:
    dag_file.write_text(DAG_FILE.format(stage=stage))
    [error] = import_dag_bag()(dag_file).import_errors.values()
    assert f"CapacitySensor 'room': stage='{stage}' {problem}; write one of train." in error


@pytest.mark.airflow
def test_a_stage_may_be_defined_after_the_sensor(dag_file: Path) -> None:
    dag_file.write_text(DAG_FILE.format(stage="train"))
    bag = import_dag_bag()(dag_file)
    assert (list(bag.dags), bag.import_errors) == (["toy"], {})
