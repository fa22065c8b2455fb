"""Spark's jars and the user's archives reach the storage once for each content."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.planning.shipping import environment


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    for name in ("b.jar", "a.jar"):
        (home / "jars" / name).write_bytes(name.encode())
    return home


def test_the_archive_has_the_jars_at_its_root(spark: Path, tmp_path: Path) -> None:
    uri = environment.spark_archive(f"file://{tmp_path}/s", spark)
    with zipfile.ZipFile(str(storage.local_path(uri))) as packed:
        assert {name: packed.read(name) for name in packed.namelist()} == {"a.jar": b"a.jar", "b.jar": b"b.jar"}


def test_the_same_jars_are_uploaded_once_and_others_beside_them(spark: Path, tmp_path: Path) -> None:
    root = f"file://{tmp_path}/s"
    first = environment.spark_archive(root, spark)
    written = Path(str(storage.local_path(first))).stat().st_mtime_ns
    assert environment.spark_archive(root, spark) == first
    assert Path(str(storage.local_path(first))).stat().st_mtime_ns == written
    (spark / "jars" / "c.jar").write_bytes(b"new")
    assert environment.spark_archive(root, spark) != first
    assert len(storage.list_names(uris.join(root, "environments"))) == 2


@pytest.mark.parametrize("name", environment.PROVIDED)
def test_an_explicit_setting_for_the_jars_is_kept(spark: Path, tmp_path: Path, name: str) -> None:
    assert environment.settings(f"file://{tmp_path}/s", {name: "hdfs:///spark.zip"}, spark) == {}
    assert not (tmp_path / "s").exists()


def test_a_local_archive_is_uploaded_once_under_its_hash(spark: Path, tmp_path: Path) -> None:
    root, python = f"file://{tmp_path}/s", tmp_path / "python.tar.gz"
    python.write_bytes(b"packed")
    known = {"spark.yarn.jars": "x", "spark.archives": f"{python}#environment, hdfs:///other.zip#other"}
    archives = environment.settings(root, known, spark)["spark.archives"]
    first, second = archives.split(",")
    assert second == "hdfs:///other.zip#other"
    uri, name = first.split("#")
    digest = hashlib.sha256(b"packed").hexdigest()
    assert (uri, name) == (f"{root}/environments/{digest[:16]}-python.tar.gz", "environment")
    assert storage.read(uri) == b"packed"
    written = Path(str(storage.local_path(uri))).stat().st_mtime_ns
    assert environment.settings(root, known, spark)["spark.archives"] == archives
    assert Path(str(storage.local_path(uri))).stat().st_mtime_ns == written


def test_a_missing_archive_is_named(spark: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"spark\.archives names /nowhere\.tar\.gz"):
        environment.settings(f"file://{tmp_path}/s", {"spark.archives": "/nowhere.tar.gz#environment"}, spark)


PACKED = "hdfs:///t/environments/a-environment.tar.gz"


def test_an_application_runs_the_python_and_java_of_a_packed_environment() -> None:
    conf = environment.packed_settings(PACKED, {}, "")
    assert conf["spark.archives"] == f"{PACKED}#environment"
    assert environment.node_runtime(conf, {"PYSPARK_PYTHON": "/usr/bin/python3"}) == environment.NodeRuntime(
        "./environment/bin/python", "{{PWD}}/environment/java", {"environment": PACKED}
    )


def test_archives_of_the_application_remain_beside_a_packed_environment() -> None:
    conf = environment.packed_settings(PACKED, {}, "/x/words.zip")
    assert conf["spark.archives"] == f"{PACKED}#environment,/x/words.zip"


def test_an_application_that_names_a_python_has_no_packed_environment() -> None:
    assert environment.packed_settings(PACKED, {"spark.pyspark.python": "/opt/bin/python"}, "") == {}


@pytest.mark.parametrize(
    ("python", "archives", "checkable"),
    [
        ("/usr/bin/python3", {}, True),
        ("./environment/bin/python", {"environment": PACKED}, True),
        ("./environment/bin/python", {"environment": "/local/x.tar.gz"}, False),
        ("./environment/bin/python", {"environment": "file:///local/x.tar.gz"}, False),
        ("./environment/bin/python", {"environment": "s3a://bucket/x.tar.gz"}, False),
        ("./environment/bin/python", {"other": PACKED}, False),
        ("python3", {}, False),
    ],
)
def test_a_probe_runs_a_python_of_the_node_or_of_an_archive_on_hdfs(
    python: str, archives: dict[str, str], checkable: bool
) -> None:
    assert environment.NodeRuntime(python, None, archives).is_checkable is checkable
