"""Spark's jars reach the nodes by way of HDFS, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from stack.hadoop.cluster import Cluster
from tests.cluster.jobs import Exports, finished
from trainyard.contract import storage

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
    [archive] = storage.names(storage.join(plan.storage, "environments"))
    assert archive.startswith("spark-") and archive.endswith(".zip")
    assert storage.size(storage.join(plan.storage, "environments", archive)) > 100 << 20
