"""Where jobs run: on the test cluster, a Hadoop whose seven daemons run on this machine."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import requests
from fsspec.implementations.webhdfs import WebHDFS

from bench.peers.systems import JOBS
from stack.hadoop.cluster import HOST, Cluster
from stack.hadoop.config import USER
from trainyard.yarn.resource_manager import LIVE

RESOURCE_MANAGER = "yarn_resourcemanager_webapp_address"
"""The extra of the Spark connection by which SparkSubmitOperator follows an application."""
SECONDS = 60.0


class Yarn:
    """The test cluster. All of its nodes are this machine, so that they read the source and append to the marks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._hdfs = WebHDFS(HOST, port=cluster.ports["namenode.http"], user=USER, skip_instance_cache=True)

    @classmethod
    @contextlib.contextmanager
    def launch(cls, home: Path) -> Iterator[Yarn]:
        """Run the cluster in `home` while the context is active; one that already runs is left as it is.

        Args:
            home: The folder of the cluster.
        """
        cluster = Cluster.open(home) if (home / "cluster.json").exists() else Cluster.create(home)
        runs = all(cluster.get_pid(name) is not None for name in cluster.daemons)
        try:
            cluster.start()
            cluster.wait()
            yield cls(cluster)
        finally:
            if not runs:
                cluster.stop()

    def build_variables(self, folder: Path, common: Mapping[str, str]) -> dict[str, str]:
        """Return the connections to the cluster, and a configuration of Spark with the variables of the nodes."""
        variables = self._cluster.build_environment()
        spark = json.loads(variables["AIRFLOW_CONN_SPARK_DEFAULT"])
        spark["extra"][RESOURCE_MANAGER] = self._cluster.get_url("resourcemanager.http")
        conf = folder / "conf"
        conf.mkdir()
        defaults = Path(variables["SPARK_CONF_DIR"], "spark-defaults.conf").read_text()
        (conf / "spark-defaults.conf").write_text(add_variables(defaults, common))
        return variables | {"SPARK_CONF_DIR": str(conf), "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark)}

    def list_left(self, token: str) -> Sequence[str]:
        """Return the applications that have not ended."""
        return sorted(str(application["name"]) for application in self._list_live())

    def read_evaluation(self, folder: Path) -> bytes | None:
        """Return the evaluation in HDFS."""
        for path in self._find(self._cluster.storage):
            if "/evaluations/" in path and path.endswith(".json"):
                return bytes(self._hdfs.cat_file(path))
        return None

    def end(self) -> None:
        """Kill the applications that have not ended, and remove what they stored in HDFS."""
        end = time.monotonic() + SECONDS
        while (live := self._list_live()) and time.monotonic() < end:
            for application in live:
                url = f"{self._cluster.get_url('resourcemanager.http')}/ws/v1/cluster/apps/{application['id']}/state"
                requests.put(url, params={"user.name": USER}, json={"state": "KILLED"}, timeout=10)
            time.sleep(1)
        with contextlib.suppress(FileNotFoundError):
            self._hdfs.rm(_get_path(self._cluster.storage), recursive=True)

    def _list_live(self) -> list[dict[str, Any]]:
        found = (self._cluster.query_yarn("apps")["apps"] or {}).get("app", [])
        return [application for application in found if application["state"] in LIVE]

    def _find(self, uri: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return list(self._hdfs.find(_get_path(uri)))
        return []


def add_variables(defaults: str, common: Mapping[str, str]) -> str:
    """Return a spark-defaults.conf by which driver and executors have the marks, and what all jobs share.

    Args:
        defaults: The configuration of the cluster.
        common: The variables of the command.
    """
    names = [name for name in common if name in ("OMP_NUM_THREADS", "PYTHONPATH") or name.startswith("PEERS_")]
    prefixes = ("spark.yarn.appMasterEnv", "spark.executorEnv")
    values = {name: str(JOBS / "shared") if name == "PYTHONPATH" else common[name] for name in names}
    return defaults + "".join(f"{prefix}.{name} {value}\n" for prefix in prefixes for name, value in values.items())


def _get_path(uri: str) -> str:
    return "/" + uri.split("://")[1].partition("/")[2]
