"""A Hadoop on nine hosts, and trainings that run on it from its gateway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.hosts.hadoop import GATEWAY, PLACES, HostedHadoop
from tests.cluster.conftest import ROOT
from tests.cluster.jobs import wait_for

NODES: Mapping[str, str] = {
    **PLACES, "datanode1": "data1", "datanode2": "data2", "node2": "node2", "gpunode3": "gpunode3",
}  # fmt: skip
"""The host of each daemon: HDFS has hosts of its own, and there is one node of each kind more than a training needs."""
YARN_EXPIRY = {"yarn-site": {"yarn.nm.liveness-monitor.expiry-interval-ms": 600_000}}
"""YARN's default: whether a node is lost is seen without it."""
IN_CONTAINERS = ("ApplicationMaster", "YarnCoarseGrainedExecutorBackend", "pyspark")


@dataclass(frozen=True, order=True)
class Step:
    """A step of a worker: when it was computed, on which host, by which process, with which rows."""

    at: float
    host: str
    process: str
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Job:
    """A job that runs on the gateway: its process, what it prints, and the folder of its workers' steps."""

    process: subprocess.Popen[bytes]
    log: Path
    folder: Path

    def finish(self) -> dict[str, Any]:
        """Wait for the end of the job, and return what came of it."""
        status = self.process.wait()
        lines = self.log.read_text().splitlines()
        assert status == 0, "\n".join(lines[-80:])
        return dict(json.loads(lines[-1]))

    def kill(self) -> None:
        """Kill the job, but not its application."""
        self.process.kill()
        self.process.wait()

    def read_steps(self) -> list[Step]:
        """Return the steps so far, in the order of their time."""
        return sorted(step for file in self.folder.iterdir() for step in _parse(file))

    def wait_for_steps(self, number: int) -> None:
        """Wait until some worker has computed so many steps."""

        def have_passed() -> bool:
            assert self.process.poll() is None, self.log.read_text()[-6000:]
            steps = self.read_steps()
            return len(steps) >= number

        wait_for(have_passed)


def _parse(file: Path) -> list[Step]:
    host, process = file.name.split("-")
    lines = [line.split() for line in file.read_text().splitlines()]
    return [Step(float(at), host, process, tuple(int(row) for row in rows.split(","))) for at, rows in lines]


@dataclass(frozen=True)
class Bed:
    """A Hadoop on hosts, and a folder that all of them share."""

    hadoop: HostedHadoop
    folder: Path

    def start(self, job: str, name: str) -> Job:
        """Start a job of `tests.cluster.hosts.job` on the gateway."""
        steps = self.folder / name
        steps.mkdir()
        steps.chmod(0o777)  # containers have another user
        log, home = self.folder / f"{name}.log", str(self.hadoop.cluster.home)
        command = (sys.executable, "-m", "tests.cluster.hosts.job", job, home, str(self.folder), name)
        path = os.pathsep.join([str(ROOT), str(ROOT / "plugins")])
        environment = os.environ | {"PYTHONPATH": path, "AIRFLOW_HOME": str(self.folder / "airflow")}
        process = self.hadoop.hosts[GATEWAY].start(*command, log=log, folder=ROOT, environment=environment)
        return Job(process, log, steps)

    def restore(self) -> None:
        """Repair all hosts and daemons, and wait until the Hadoop has all its nodes."""
        for name, host in self.hadoop.hosts.items():
            if host.is_on:
                host.connect_cable()
                host.run("rm", "-f", "/tmp/full")
                self.hadoop.start(name)
            else:
                self.hadoop.reboot(name)
        self.hadoop.wait()

    def end(self, job: Job) -> None:
        """End a job, and all applications, after a test. All hosts are as before then, and no container is left."""
        job.kill()
        self.restore()
        end = self.start("end", f"{job.folder.name}-end")
        assert end.process.wait() == 0, end.log.read_text()[-6000:]
        wait_for(lambda: not self.find_containers(), 60)

    def find_containers(self) -> list[str]:
        """Return the processes of containers, by host, that run now."""
        found = []
        for name, host in self.hadoop.hosts.items():
            if not host.is_on:
                continue
            listed = host.run("ps", "-wweo", "args", capture_output=True).stdout.splitlines()
            found += [f"{name}: {line}" for line in listed if any(program in line for program in IN_CONTAINERS)]
        return found
