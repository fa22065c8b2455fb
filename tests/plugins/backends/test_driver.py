"""What a driver does before its job begins, and the record where it fails before that."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainyard.backends import driver
from trainyard.errors import UnavailableError
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.schemas.specs.task_key import TaskKey

IMPORTED = threading.Event()


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


def test_the_module_of_the_job_is_imported_while_spark_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    imported = threading.Event()
    folder = tmp_path / "slow"
    folder.mkdir()
    (folder / "slow_job.py").write_text(
        "from tests.plugins.backends import test_driver\n"
        "test_driver.IMPORTED.set()\n"
        "def run(spark, spec, events): return {'workers': 1, 'restarts': 0}\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(ScriptSpec, "ENTRY", "slow_job:run")
    monkeypatch.setattr(f"{__name__}.IMPORTED", imported)

    def start(_: object) -> Any:
        assert imported.wait(60), "the import has to begin before Spark has started"
        return SimpleNamespace(sparkContext=SimpleNamespace(applicationId="local-1"))

    monkeypatch.setattr(driver, "_session", start)
    task_key = TaskKey(dag_id="toy", run_id="r", task_id="t", directory=tmp_path.as_uri())
    record = driver.run(ScriptSpec(task_key=task_key, script="toy.script"))
    assert (record.error, record.application) == (None, "local-1")
    assert record.output == {"workers": 1, "restarts": 0}


DYNAMIC = {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.minExecutors": "4"}


@pytest.mark.parametrize(
    ("conf", "cores"),
    [
        ({}, 2),
        ({"spark.executor.instances": "8", "spark.executor.cores": "5"}, 40),
        ({"spark.executor.instances": "1"}, 2),
        ({"spark.executor.cores": "3"}, 6),
        (DYNAMIC, 4),
        ({**DYNAMIC, "spark.dynamicAllocation.initialExecutors": "6", "spark.executor.cores": "2"}, 12),
    ],
)
def test_a_source_is_divided_for_all_executors_of_the_start(conf: dict[str, str], cores: int) -> None:
    assert driver.count_cores(conf) == cores


def fail_to_start(_: object) -> None:
    raise ConnectionRefusedError("the JVM has ended")


def start(monkeypatch: pytest.MonkeyPatch, run: Path, task: str, said: str = "") -> None:
    """Store the spec of task `t`, which says that its run is at `said`, at the place of `task` in `run`."""
    task_key = TaskKey(dag_id="toy", run_id="r", task_id="t", directory=said or run.as_uri())
    spec = run / f"attempts/{task}/1.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(ScriptSpec(task_key=task_key, script="toy.script").to_json())
    monkeypatch.setattr("sys.argv", ["driver.py", "--spec", spec.as_uri()])


def test_a_record_is_written_where_the_spec_lies_and_not_where_it_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(driver, "_session", fail_to_start)
    start(monkeypatch, tmp_path / "run", "t", said=(tmp_path / "other").as_uri())
    assert driver.main() == 1
    assert list((tmp_path / "run/records").iterdir()) and not (tmp_path / "other").exists()


def test_the_spec_of_another_task_is_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(monkeypatch, tmp_path, "u")
    assert driver.main() == 1
    assert "is a document of task 't', which lies at another place" in capsys.readouterr().err
    assert not (tmp_path / "records").exists()


def test_the_error_of_a_job_is_printed_although_its_record_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where the quota of the storage is exceeded, which is why the job has failed."""

    monkeypatch.setattr(driver, "_session", fail_to_start)
    (tmp_path / "records").touch()
    start(monkeypatch, tmp_path, "t")
    assert driver.main() == 1
    printed = capsys.readouterr().err
    assert f"{driver.FAILED}: ConnectionRefusedError: the JVM has ended" in printed
    assert "There is no run record: " in printed
    assert printed.endswith("\nThe job had failed: ConnectionRefusedError: the JVM has ended\n")


def fail_by_storage() -> None:
    try:
        raise OSError("connection reset")
    except OSError as error:
        raise UnavailableError("cannot read hdfs://nn/data, for 120 s: connection reset") from error


def fail_by_java() -> None:
    raise ValueError("An error occurred while calling o1.collect.\n\tat org.x.Y.run(Y.scala:1)\n\t... 12 more\n")


def test_the_traceback_of_an_error_is_short_and_left_out_where_the_message_says_all() -> None:
    """An error of a storage was printed three times, as the tracebacks of its causes."""
    for fail, lines in ((fail_by_storage, 0), (fail_by_java, 6)):
        with pytest.raises((UnavailableError, ValueError)) as raised:
            fail()
        error, trace = driver.describe_failure(raised.value)
        assert len(error.splitlines()) == 1
        shown = [line for line in (trace or "").splitlines() if line.strip(" ~^")]  # marks, since Python 3.13
        assert len(shown) == lines, trace


@pytest.mark.parametrize(
    ("conf", "defaults"),
    [
        ({"spark.master": "local[2]"}, driver.DEFAULTS),
        (
            {driver.REGISTERED_RATIO: "0", "spark.executor.instances": "3"},
            driver.DEFAULTS | {"spark.default.parallelism": "3"},
        ),
        (dict.fromkeys(driver.DEFAULTS, "own") | {driver.REGISTERED_RATIO: "0", "spark.default.parallelism": "7"}, {}),
    ],
)
def test_a_session_has_defaults_where_the_configuration_says_nothing(
    conf: dict[str, str], defaults: dict[str, str]
) -> None:
    assert driver.choose_defaults(conf) == defaults
