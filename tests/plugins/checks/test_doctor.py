"""The checks of an installation on this machine. On a cluster: tests/cluster/test_preflight.py."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from trainyard.checks import doctor
from trainyard.cli.main import main
from trainyard.planning.runtime import find_spark

pytestmark = pytest.mark.airflow


def connect(monkeypatch: pytest.MonkeyPatch, name: str, **fields: object) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Connections that pass every check."""
    connect(monkeypatch, "trainyard_default", conn_type="trainyard", extra={"storage": (tmp_path / "data").as_uri()})
    connect(monkeypatch, "spark_default", conn_type="spark", host="local[2]")
    return tmp_path


def checks() -> dict[str, doctor.Check]:
    return {check.subject: check for check in doctor.run_checks("trainyard_default", "spark_default")}


def test_a_complete_installation_passes_every_check(local: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert "FIX" not in shown
    assert f"{(local / 'data').as_uri()}, writable" in shown and "local[2]" in shown
    assert not (local / "data").exists(), "nothing is left behind"


def test_every_failed_check_has_a_line_and_a_fix(
    local: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (local / "data").write_text("a file, not a folder")
    monkeypatch.setenv("JAVA_HOME", str(local))
    connect(monkeypatch, "spark_default", conn_type="spark", host="k8s://master")
    assert main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("FIX") == 3
    assert "Java: Spark needs Java 17 or newer" in shown
    assert "write another storage in the extra of connection 'trainyard_default'" in shown
    assert "Write its host as local[2], spark://HOST:7077 or yarn." in shown


@pytest.mark.full
def test_an_unexpected_error_fails_its_own_check_alone(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = local / "bin" / "java"
    java.parent.mkdir()
    java.write_bytes(b"a program of another architecture")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(local))
    results = checks()
    assert results["Java"].fix.startswith("OSError: [Errno 8] Exec format error")
    assert [subject for subject, check in results.items() if check.fix] == ["Java"]


def test_an_unexpected_error_of_the_spark_connection_is_its_row(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (local / "spark-defaults.conf").write_bytes(b"spark.yarn.queue \xff")
    monkeypatch.setenv("SPARK_CONF_DIR", str(local))
    results = checks()
    assert results["connection spark_default"].fix.startswith("UnicodeDecodeError: ")
    assert list(results)[:4] == ["Airflow", "Java", "Spark", "storage of trainyard_default"]


@pytest.mark.full
def test_a_spark_home_with_a_trailing_slash_is_used(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = find_spark({})
    monkeypatch.setenv("SPARK_HOME", f"{home}/")
    assert checks()["Spark"] == doctor.Check("Spark", f"{metadata.version('pyspark')}, {home}")


def test_a_missing_connection_comes_with_the_command_that_creates_it(
    local: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    results = list(doctor.run_checks("trainyard_default", "nowhere"))
    assert results[-1].fix.startswith("there is no Spark connection 'nowhere'; create it")


def test_a_missing_cluster_configuration_is_reported(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "spark_default", conn_type="spark", host="yarn")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(local))
    assert "has no yarn-site.xml" in checks()["ResourceManager"].fix


def test_a_cluster_configuration_that_is_not_xml_is_reported(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "spark_default", conn_type="spark", host="yarn")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(local))
    (local / "yarn-site.xml").write_text("<configuration>")
    assert checks()["ResourceManager"].fix.startswith("ParseError: ")


def test_a_python_that_prints_warnings_passes(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = local / "python"
    noisy.write_text("#!/bin/sh\necho 'DeprecationWarning: old' >&2\n")
    noisy.chmod(0o755)
    monkeypatch.setattr(doctor, "spark_environment", lambda: {"PYSPARK_PYTHON": str(noisy), "PATH": ""})
    results = checks()
    assert results["Python"].fix == "" and results["GPUs"].result == "unknown, without torch"


def test_a_python_without_the_modules_is_reported(local: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = local / "python"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr(doctor, "spark_environment", lambda: {"PYSPARK_PYTHON": str(bare), "PATH": ""})
    assert "No module named 'torch'. Install requirements.txt there" in checks()["Python"].fix
