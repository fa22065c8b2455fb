"""The record of a driver that fails before it has a Spark session."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.backends import driver
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.schemas.specs.task_key import TaskKey


@pytest.mark.parametrize(
    ("container", "application"),
    [
        ("container_1795474192292_0002_01_000001", "application_1795474192292_0002"),
        ("container_e17_1795474192292_0002_01_000001", "application_1795474192292_0002"),
        ("", ""),
    ],
)
def test_the_record_of_a_driver_without_a_spark_session_names_its_application(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, container: str, application: str
) -> None:
    def fail(_: object) -> None:
        raise ConnectionRefusedError("the JVM has ended")

    monkeypatch.setattr(driver, "_session", fail)
    monkeypatch.setenv("CONTAINER_ID", container)
    task_key = TaskKey(dag_id="toy", run_id="r", task_id="t", directory=tmp_path.as_uri())
    record = driver.run(ScriptSpec(task_key=task_key, script="toy.script"))
    assert (record.status, record.application) == ("failed", application)
