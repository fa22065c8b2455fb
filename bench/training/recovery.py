"""Measure the time from kill -9 of a worker to the next step, and compare it with a warm start of a worker group.

    . stack/local/env.sh && PYTHONPATH=plugins:. python bench/training/recovery.py [--rounds 5]

Worker groups have two workers in one Spark application, local[2]. Cold start: the first group, whose Python workers
do not exist yet. Warm start: a group in Python workers that have trained before, from its start to the end of the
first step of all workers. Recovery: from the time at which rank 1 is killed to the end of the next step, from a
checkpoint, with the parts of that time. Figures are medians over rounds.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.trainer import datasets
from trainyard.schemas.runs import events as event_log
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec
from trainyard.trainer.group import supervisor
from trainyard.trainer.model.recipe import Recipe

ROOT = Path(__file__).parents[2]
LAST_STEP = 17


class KilledLinear(nn.Linear):
    """A layer that kills rank 1 if the file `order` exists, which is replaced by one with the time."""

    def __init__(self, order: Path) -> None:
        super().__init__(8, 3)
        self._order, self._passes = order, 0

    def forward(self, x: Tensor) -> Tensor:
        self._passes += self.training
        if self._passes == LAST_STEP and torch.distributed.get_rank() == 1 and self._order.exists():
            self._order.rename(self._order.with_name("killed")).write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(x)


def recipe(folder: str) -> Recipe:
    return Recipe(model=KilledLinear(Path(folder, "kill")), features="x", label="label", loss=nn.CrossEntropyLoss())


def start_session() -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / part) for part in ("plugins", ""))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.daemon.module", "trainyard.trainer.group.daemon")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def train(spark: Any, folder: Path, kill: bool) -> list[dict[str, Any]]:
    """Train, with a worker that is killed once if `kill`; return the events."""
    folder.mkdir()
    if kill:
        (folder / "kill").touch()
    task_key = TaskKey(dag_id="d", run_id="r", task_id="train", directory=str(folder / "run"))
    job = TrainSpec(
        task_key=task_key, recipe="bench.training.recovery:recipe", recipe_params={"folder": str(folder)}, workers=2,
        dataset=datasets.write(folder / "dataset", {"train": datasets.blobs(1000)}), model=str(folder / "model"),
        options=TrainOptions(epochs=1, batch_size=40, checkpoint_steps=5),
    )  # fmt: skip
    with EventLog(task_key.directory, task_key.task, "driver") as events:
        supervisor.run(spark, job, events)
    return event_log.read(task_key.directory)


def group_by_process(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the spans and instants of each process, by its name."""
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    groups: dict[str, list[dict[str, Any]]] = {name: [] for name in names.values()}
    for event in events:
        if event["ph"] in "Xi":
            groups[names[event["tid"]]].append(event)
    return groups


def find_first(events: list[dict[str, Any]], name: str) -> tuple[float, float]:
    """Return when the first span of this name began and ended, in seconds."""
    event = next(event for event in events if event["name"] == name)
    return event["ts"] / 1e6, (event["ts"] + event.get("dur", 0)) / 1e6


def find_first_step(processes: dict[str, list[dict[str, Any]]], suffix: str = "") -> float:
    """Return when all workers of a start had finished a step."""
    return max(find_first(processes[f"worker {rank}{suffix}"], "optimizer")[1] for rank in range(2))


def measure_start(events: list[dict[str, Any]]) -> float:
    processes = group_by_process(events)
    return find_first_step(processes) - find_first(processes["driver"], "worker group")[0]


def measure_recovery(events: list[dict[str, Any]], killed: float) -> dict[str, float]:
    """Return the seconds from the kill of a worker to the next step, and their parts."""
    processes = group_by_process(events)
    later = [event for event in processes["driver"] if event["ts"] / 1e6 > killed]
    workers = [processes[f"worker {rank}, start 2"] for rank in range(2)]
    restarted, launched = find_first(later, "restart")[0], find_first(later, "worker group")[0]
    imported, connected = (max(find_first(worker, name)[1] for worker in workers) for name in ("import", "rendezvous"))
    entered, stepped = (
        max(find_first(worker, "import")[0] for worker in workers),
        find_first_step(processes, ", start 2"),
    )
    return {
        "total": stepped - killed, "until the driver restarts the group": restarted - killed,
        "slots": launched - restarted, "until both workers begin": entered - launched,
        "imports": imported - entered, "rendezvous": connected - imported,
        "checkpoint, recipe, first step": stepped - connected,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    spark = start_session()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        print(f"cold start: {measure_start(train(spark, folder / 'cold', kill=False)):.2f} s")
        warm, after = [], []
        for number in range(rounds):
            warm.append(measure_start(train(spark, folder / f"warm{number}", kill=False)))
            events = train(spark, folder / f"killed{number}", kill=True)
            after.append(measure_recovery(events, float((folder / f"killed{number}" / "killed").read_text())))
    spark.stop()
    print(f"warm start: {statistics.median(warm):.2f} s ({', '.join(f'{seconds:.2f}' for seconds in warm)})")
    for part in after[0]:
        print(f"recovery, {part}: {statistics.median(times[part] for times in after):.2f} s")
    ratio = statistics.median(times["total"] / seconds for times, seconds in zip(after, warm, strict=True))
    print(f"recovery / warm start: {ratio:.2f} (goal 1.5)")


if __name__ == "__main__":
    main()
