"""Spark's jars, and a Python, reach the nodes by way of HDFS, once."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from stack.hadoop.cluster import Cluster
from tests.cluster.jobs import Exports, finished
from trainyard import storage

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(900)]


def test_jars_that_no_setting_names_are_put_on_hdfs(
    exports: Exports, configured: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = Path(configured.environment()["SPARK_CONF_DIR"], "spark-defaults.conf").read_text()
    (tmp_path / "spark-defaults.conf").write_text(
        "".join(f"{line}\n" for line in conf.splitlines() if not line.startswith("spark.yarn.jars"))
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    plan = exports.plan()
    assert finished(plan).status == "succeeded"
    [archive] = storage.list_names(storage.join(plan.storage, "environments"))
    assert archive.startswith("spark-") and archive.endswith(".zip")
    assert storage.size(storage.join(plan.storage, "environments", archive)) > 100 << 20


HERE = """
    import sys

    def shipped() -> bool:
        return sys.prefix.endswith("/environment")

    def rows(spark, source):
        assert shipped(), sys.prefix
        assert spark.sparkContext.parallelize(range(2), 2).map(lambda _: shipped()).collect() == [True, True]
        return spark.range(500)
"""


def test_a_python_that_is_shipped_as_an_archive_runs_on_the_nodes(exports: Exports, tmp_path: Path) -> None:
    """Its packages are those of the tests' own, so that the archive stays small."""
    folder = tmp_path / "environment"
    subprocess.run([os.path.realpath(sys.executable), "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "all.pth").write_text("\n".join(site.getsitepackages()))
    with tarfile.open(tmp_path / "python.tar.gz", "w:gz") as packed:
        packed.add(folder, ".")
    archives = f"{tmp_path}/python.tar.gz#environment"
    plan = exports.plan(HERE, conf={"spark.archives": archives, "spark.pyspark.python": "./environment/bin/python"})
    assert finished(plan).output["rows"] == 500
    [archive] = storage.list_names(storage.join(plan.storage, "environments"))
    assert archive.endswith("-python.tar.gz")
