"""Sensors that wait for a change, in their worker or in the triggerer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.evaluations import write_model
from tests.plugins.resource_managers import Answer, application, serve, write_yarn_site
from trainyard.compat import AirflowException, AirflowSensorTimeout, TaskDeferred
from trainyard.files import storage
from trainyard.sensors import ApplicationSensor, ChampionSensor, DatasetSensor
from trainyard.triggers import DatasetTrigger

ID = "application_1795290845344_0001"


class TaskInstance:
    """What a sensor uses of Airflow's task instance."""

    max_tries = 0
    try_number = 1


CONTEXT: Any = {"ti": TaskInstance()}


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The storage root of the default connection."""
    connection = {"conn_type": "trainyard", "extra": {"storage": tmp_path.as_uri()}}
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps(connection))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("deferrable", [True, False])
def test_a_version_that_is_there_is_returned_at_once(root: Path, deferrable: bool) -> None:
    storage.create(f"{root}/toy/versions/00000002.json", b"{}")
    sensor = DatasetSensor(task_id="wait", dataset="toy", since=1, deferrable=deferrable)
    assert sensor.execute(CONTEXT) == {"uri": f"{root.as_uri()}/toy", "version": 2}


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_dataset_that_was_exported_again_is_new(root: Path, deferrable: bool) -> None:
    storage.create(f"{root}/toy/versions/00000002.json", b"{}")
    sensor = DatasetSensor(task_id="wait", dataset="toy", since=7, deferrable=deferrable, poke_interval=0.01, timeout=1)
    assert sensor.execute(CONTEXT) == {"uri": f"{root.as_uri()}/toy", "version": 2}


def test_a_sensor_defers_until_there_is_a_version(root: Path) -> None:
    sensor = DatasetSensor(task_id="wait", dataset="toy", since="3", deferrable=True, poke_interval=7, timeout=60)  # type: ignore[arg-type]
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute(CONTEXT)
    assert deferred.value.trigger.serialize() == DatasetTrigger("toy", 3, poll=7.0).serialize()
    assert deferred.value.timeout.total_seconds() == 60
    assert sensor.resume(CONTEXT, {"uri": "toy", "version": 4}) == {"uri": "toy", "version": 4}


def test_a_sensor_that_is_not_deferrable_gives_up_after_its_timeout() -> None:
    sensor = DatasetSensor(task_id="wait", dataset="toy", deferrable=False, poke_interval=0.01, timeout=0.05)
    with pytest.raises(AirflowSensorTimeout):
        sensor.execute(CONTEXT)


def test_a_connection_that_does_not_exist_fails_at_once() -> None:
    sensor = DatasetSensor(task_id="wait", dataset="toy", conn_id="other", deferrable=True)
    with pytest.raises(AirflowException, match="DatasetSensor 'wait': there is no connection 'other'"):
        sensor.execute(CONTEXT)


def test_a_champion_that_is_known_is_waited_out(root: Path) -> None:
    known = write_model(root / "toy/champion", b"old").weights_sha256
    sensor = ChampionSensor(task_id="wait", champion="toy/champion", other_than=known, deferrable=True)
    with pytest.raises(TaskDeferred):
        sensor.execute(CONTEXT)
    new = write_model(root / "toy/champion", b"new").weights_sha256
    assert sensor.execute(CONTEXT)["weights_sha256"] == new


@pytest.mark.parametrize("deferrable", [True, False])
def test_an_application_that_failed_fails_the_sensor(
    root: Path, monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    failed = application(1, "FAILED", diagnostics="exit code 13")
    with serve(lambda *_: Answer({"app": failed})) as server:
        write_yarn_site(root, monkeypatch, server)
        sensor = ApplicationSensor(task_id="wait", application=ID, deferrable=deferrable)
        with pytest.raises(AirflowException, match=f"{ID} ended FAILED/FAILED: exit code 13"):
            sensor.execute(CONTEXT)


def test_an_application_that_does_not_exist_fails_the_sensor_at_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(lambda *_: Answer({"RemoteException": {"message": "none"}}, 404)) as server:
        write_yarn_site(root, monkeypatch, server)
        with pytest.raises(AirflowException, match=f"{ID} ended UNKNOWN/UNKNOWN: the ResourceManager has no"):
            ApplicationSensor(task_id="wait", application=ID, deferrable=True).execute(CONTEXT)


def test_a_storage_that_is_away_for_a_while_does_not_fail_a_sensor(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([ConnectionError("no route to host"), [1]])

    def list_versions(uri: str) -> list[int]:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("trainyard.schemas.datasets.manifest.list_versions", list_versions)
    sensor = DatasetSensor(task_id="wait", dataset="toy", deferrable=False, poke_interval=0.01, timeout=60)
    assert sensor.execute(CONTEXT)["version"] == 1
