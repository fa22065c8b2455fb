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
from trainyard.files import storage, uris

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(900)]


PREPARE = """
    import sys

    def in_archive() -> bool:
        return sys.prefix.endswith("/environment")

    def rows(spark, source):
        assert in_archive(), sys.prefix
        assert spark.sparkContext.parallelize(range(2), 2).map(lambda _: in_archive()).collect() == [True, True]
        return spark.range(500)
"""


def build_archive(folder: Path) -> Path:
    """Return an archive with a Python; its packages are those of this environment, so that it stays small."""
    environment = folder / "environment"
    subprocess.run([os.path.realpath(sys.executable), "-m", "venv", "--without-pip", environment], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "all.pth").write_text("\n".join(site.getsitepackages()))
    with tarfile.open(folder / "python.tar.gz", "w:gz") as tar:
        tar.add(environment, ".")
    return folder / "python.tar.gz"


def test_jars_without_a_setting_and_an_archive_with_python_run_on_the_nodes(
    exports: Exports, configured: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = Path(configured.build_environment()["SPARK_CONF_DIR"], "spark-defaults.conf").read_text()
    (tmp_path / "spark-defaults.conf").write_text(
        "".join(f"{line}\n" for line in conf.splitlines() if not line.startswith("spark.yarn.jars"))
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    archives = f"{build_archive(tmp_path)}#environment"
    plan = exports.plan(PREPARE, conf={"spark.archives": archives, "spark.pyspark.python": "./environment/bin/python"})
    assert run_to_end(plan).output["rows"] == 500
    folder = uris.join(plan.job.storage, "environments")
    archive, jars = sorted(storage.list_names(folder))
    assert archive.endswith("-python.tar.gz")
    assert jars.startswith("spark-") and jars.endswith(".zip") and storage.size(uris.join(folder, jars)) > 100 << 20
