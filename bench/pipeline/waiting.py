"""Measure what tasks that wait for applications on YARN cost the triggerer, against a real ResourceManager.

It starts a Hadoop, submits applications that sleep (those that do not fit are queued), and waits for each in a trigger
of its own, all in one event loop, as the triggerer does. Then it ends some and measures when their triggers notice. It
also measures what reading the progress of trainings costs.

    python -m bench.pipeline.waiting [--tasks 1000] [--seconds 60]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import requests

from stack.hadoop.cluster import Cluster
from stack.hadoop.config import USER
from trainyard.planning.paths import COMMON_TAG
from trainyard.schemas.runs.worker_progress import GroupProgress, TrainingProgress, progress_uri
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.triggers.application import POLL_SECONDS, ApplicationTrigger
from trainyard.triggers.progress import INTERVAL_SECONDS, ProgressReader
from trainyard.yarn import cluster as clusters
from trainyard.yarn.resource_manager import ResourceManager

MAX_DELAY_SECONDS = 15.0
SAMPLES = 50
TRAININGS = 100
ROUNDS = 5
MAX_PROGRESS_CORES = 0.01


counts: Counter[str] = Counter()
"""Requests of this process, by method."""


def count_requests() -> None:
    """Count the requests of all sessions."""
    request = requests.Session.request

    def count(session: requests.Session, method: str, *arguments: Any, **options: Any) -> requests.Response:
        counts[method] += 1
        return request(session, method, *arguments, **options)

    requests.Session.request = count  # type: ignore[method-assign]


def submit(session: requests.Session, url: str, number: int) -> str:
    """Submit an application of one container that sleeps, and return its id."""
    query = {"user.name": USER}
    id = str(session.post(f"{url}/ws/v1/cluster/apps/new-application", params=query).json()["application-id"])
    body: dict[str, Any] = {
        "application-id": id, "application-name": f"sleep-{number}", "application-type": "TRAINYARD", "queue": "etl",
        "max-app-attempts": 1, "resource": {"memory": 256, "vCores": 1},
        "am-container-spec": {"commands": {"command": "exec sleep 3600"}},
        "application-tags": {"tag": [COMMON_TAG, f"trainyard-sleep-{number}"]},
    }  # fmt: skip
    session.post(f"{url}/ws/v1/cluster/apps", params=query, json=body).raise_for_status()
    return id


async def wait(id: str, tag: str, noticed: dict[str, float]) -> None:
    """Wait for an application, and note when its trigger fired."""
    await anext(aiter(ApplicationTrigger(id, tag).run()))
    noticed[id] = time.monotonic()


async def measure(manager: ResourceManager, ids: list[str], seconds: float) -> None:
    """Wait for all applications, and print what the process used, and when it noticed that some had ended."""
    noticed: dict[str, float] = {}
    tasks = [asyncio.create_task(wait(id, f"trainyard-sleep-{n}", noticed)) for n, id in enumerate(ids)]
    await asyncio.sleep(2 * POLL_SECONDS)
    counts.clear()
    begun, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    elapsed, used = time.monotonic() - begun, time.process_time() - cpu
    count = sum(counts.values())
    print(f"{len(ids)} tasks wait: {count / elapsed:.2f} requests/s, {used / elapsed:.3f} of a core")
    ended: dict[str, float] = {}
    for id in random.Random(0).sample(ids, SAMPLES):
        await asyncio.to_thread(manager.kill, id)
        ended[id] = time.monotonic()
    while not all(id in noticed for id in ended):
        await asyncio.sleep(0.1)
    delays = sorted(noticed[id] - ended[id] for id in ended)
    print(
        f"from a kill to the event: median {statistics.median(delays):.1f} s, longest {delays[-1]:.1f} s "
        f"(limit {MAX_DELAY_SECONDS:.0f} s{'' if delays[-1] <= MAX_DELAY_SECONDS else ', MISSED'})"
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def measure_progress(root: str) -> None:
    """Print what the live progress of 100 trainings costs, whose documents are on HDFS."""
    training = TrainingProgress(epoch=1, epochs=2, step=3, steps=9, loss=0.5, rows_per_second=9.0, seconds_left=4.0)
    keys = [TaskKey(dag_id="d", run_id="r", task_id=f"t{n}", directory=f"{root}/r") for n in range(TRAININGS)]
    for key in keys:
        GroupProgress(task_key=key, at=time.time(), workers=(), training=training).save()
    begun = time.process_time()
    for _ in range(ROUNDS):
        lines = await asyncio.gather(*(ProgressReader(progress_uri(key)).next_line() for key in keys))
        assert all(lines)
    used = (time.process_time() - begun) / ROUNDS / INTERVAL_SECONDS
    print(
        f"live progress of {TRAININGS} trainings: {used:.4f} of a core "
        f"(limit {MAX_PROGRESS_CORES}{'' if used < MAX_PROGRESS_CORES else ', MISSED'})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to measure")
    options = parser.parse_args()
    count_requests()
    logging.getLogger("trainyard").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as home, Cluster.launch(Path(home) / "hadoop") as cluster:
        os.environ |= cluster.build_environment()
        manager = clusters.resource_manager()
        with requests.Session() as session:
            ids = [submit(session, manager.urls[0], number) for number in range(options.tasks)]
        begun, cpu = time.perf_counter(), time.process_time()
        for number in range(SAMPLES):
            manager.tagged(f"trainyard-sleep-{number}")
        each, used = (time.perf_counter() - begun) / SAMPLES, (time.process_time() - cpu) / SAMPLES
        rate = options.tasks / POLL_SECONDS
        print(
            f"with a request for each task every {POLL_SECONDS:.0f} s: {rate:.0f} requests/s, {rate * used:.2f} of a "
            f"core here, {rate * each:.2f} seconds of answers a second"
        )
        asyncio.run(measure_progress(cluster.storage))
        asyncio.run(measure(manager, ids, options.seconds))
        for id in ids:
            manager.kill(id)


if __name__ == "__main__":
    main()
