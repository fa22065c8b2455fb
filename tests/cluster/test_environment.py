"""Spark's jars and a Python environment are uploaded to HDFS once for all nodes."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from stack.hadoop.cluster import Cluster
from tests.cluster.jobs import Exports, run_to_end
from trainyard import storage

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(900)]


def test_jars_without_a_setting_are_uploaded_to_hdfs(
    exports: Exports, configured: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = Path(configured.build_environment()["SPARK_CONF_DIR"], "spark-defaults.conf").read_text()
    (tmp_path / "spark-defaults.conf").write_text(
        "".join(f"{line}\n" for line in conf.splitlines() if not line.startswith("spark.yarn.jars"))
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    plan = exports.plan()
    assert run_to_end(plan).status == "succeeded"
    [archive] = storage.list_names(storage.join(plan.storage, "environments"))
    assert archive.startswith("spark-") and archive.endswith(".zip")
    assert storage.size(storage.join(plan.storage, "environments", archive)) > 100 << 20


PREPARE = """
    import sys

    def in_archive() -> bool:
        return sys.prefix.endswith("/environment")

    def rows(spark, source):
        assert in_archive(), sys.prefix
        assert spark.sparkContext.parallelize(range(2), 2).map(lambda _: in_archive()).collect() == [True, True]
        return spark.range(500)
"""


def test_a_python_in_an_archive_runs_on_the_nodes(exports: Exports, tmp_path: Path) -> None:
    """Its packages are those of this environment, so that the archive stays small."""
    folder = tmp_path / "environment"
    subprocess.run([os.path.realpath(sys.executable), "-m", "venv", "--without-pip", folder], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "all.pth").write_text("\n".join(site.getsitepackages()))
    with tarfile.open(tmp_path / "python.tar.gz", "w:gz") as tar:
        tar.add(folder, ".")
    archives = f"{tmp_path}/python.tar.gz#environment"
    plan = exports.plan(PREPARE, conf={"spark.archives": archives, "spark.pyspark.python": "./environment/bin/python"})
    assert run_to_end(plan).output["rows"] == 500
    [archive] = storage.list_names(storage.join(plan.storage, "environments"))
    assert archive.endswith("-python.tar.gz")
