"""What applications need, looked at on this machine. On a cluster: tests/cluster/test_preflight.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainyard.checks import doctor
from trainyard.cli.main import main

pytestmark = pytest.mark.airflow


def connect(monkeypatch: pytest.MonkeyPatch, name: str, **fields: object) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Connections of a machine on which all is well."""
    connect(monkeypatch, "trainyard_default", conn_type="trainyard", extra={"storage": (tmp_path / "data").as_uri()})
    connect(monkeypatch, "spark_default", conn_type="spark", host="local[2]")
    return tmp_path


def checks() -> dict[str, doctor.Check]:
    return {check.subject: check for check in doctor.run_checks("trainyard_default", "spark_default")}


def test_a_machine_on_which_all_is_well(local: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "FIX" not in shown
    assert f"{(local / 'data').as_uri()}, writable" in shown and "local[2]" in shown
    assert list((local / "data").iterdir()) == [], "nothing is left behind"


def test_each_thing_that_is_wrong_has_a_line_and_a_fix(
    local: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (local / "data").write_text("a file, not a folder")
    monkeypatch.setenv("JAVA_HOME", str(local))
    connect(monkeypatch, "spark_default", conn_type="spark", host="spark://master")
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("FIX") == 3
    assert "Java: Spark needs Java 17 or newer" in shown
    assert "write another place as storage in the extra of connection 'trainyard_default'" in shown
    assert "Write its host as local[2] or yarn" in shown


def test_a_connection_that_is_missing_is_told_how_to_create(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    found = list(doctor.run_checks("trainyard_default", "nowhere"))
    assert found[-1].fix.startswith("there is no Spark connection 'nowhere'; create it")


def test_a_cluster_whose_configuration_is_not_here_is_told(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "spark_default", conn_type="spark", host="yarn")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(local))
    assert "holds no yarn-site.xml" in checks()["ResourceManager"].fix


def test_a_python_that_only_warns_is_well(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wordy = local / "python"
    wordy.write_text("#!/bin/sh\necho 'DeprecationWarning: old' >&2\n")
    wordy.chmod(0o755)
    monkeypatch.setattr(doctor, "spark_environment", lambda: {"PYSPARK_PYTHON": str(wordy), "PATH": ""})
    found = checks()
    assert found["Python"].fix == "" and found["GPUs"].found == "unknown, without torch"


def test_a_python_without_the_modules_is_told(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = local / "python"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr(doctor, "spark_environment", lambda: {"PYSPARK_PYTHON": str(bare), "PATH": ""})
    assert "No module named 'torch'. Install requirements.txt there" in checks()["Python"].fix
