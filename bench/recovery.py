"""From kill -9 of a rank to the next step, against a warm start of a gang.

    . stack/local/env.sh && PYTHONPATH=plugins:. python bench/recovery.py [--rounds 5]

Gangs of two ranks in one Spark application, local[2]. Cold: the first gang, whose Python workers do not exist yet.
Warm: a
gang in workers that have trained before, from its start to the end of its first step on all ranks. Recovery:
from the moment that rank 1 is killed to the end of the first step after it, from a checkpoint; then where that
time went. Medians over rounds.
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
from trainyard.schemas import events as event_log
from trainyard.schemas.events import EventLog
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec
from trainyard.trainer.group import supervisor
from trainyard.trainer.model.recipe import Recipe

ROOT = Path(__file__).parent.parent
LAST_STEP = 17


class Mortal(nn.Linear):
    """Where `order` is a file, rank 1 removes it, leaves the time of its death in its place, and is killed."""

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
    return Recipe(model=Mortal(Path(folder, "kill")), features="x", label="label", loss=nn.CrossEntropyLoss())


def session() -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYTHONPATH"] = os.pathsep.join(str(ROOT / part) for part in ("plugins", ""))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.python.daemon.module", "trainyard.trainer.group.daemon")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def trained(spark: Any, folder: Path, kill: bool) -> list[dict[str, Any]]:
    """The events of a job, with a rank that is killed once or none."""
    folder.mkdir()
    if kill:
        (folder / "kill").touch()
    place = TaskKey(dag_id="d", run_id="r", task_id="train", directory=str(folder / "run"))
    job = TrainSpec(
        task_key=place, recipe="bench.recovery:recipe", recipe_params={"folder": str(folder)}, workers=2,
        dataset=datasets.write(folder / "dataset", {"train": datasets.blobs(1000)}), model=str(folder / "model"),
        options=TrainOptions(epochs=1, batch_size=40, checkpoint_steps=5),
    )  # fmt: skip
    events = EventLog(place.directory, place.task, "driver")
    supervisor.run(spark, job, events)
    events.flush()
    return event_log.read(place.directory)


def processes(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The spans and instants of each process, by its name."""
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names.values()}
    for event in events:
        if event["ph"] in "Xi":
            found[names[event["tid"]]].append(event)
    return found


def first(events: list[dict[str, Any]], name: str) -> tuple[float, float]:
    """When the first span of this name began and ended, in seconds."""
    event = next(event for event in events if event["name"] == name)
    return event["ts"] / 1e6, (event["ts"] + event.get("dur", 0)) / 1e6


def started(found: dict[str, list[dict[str, Any]]], which: str = "") -> float:
    """When all ranks of a start had taken a step."""
    return max(first(found[f"worker {rank}{which}"], "optimizer")[1] for rank in range(2))


def start(events: list[dict[str, Any]]) -> float:
    found = processes(events)
    return started(found) - first(found["driver"], "worker group")[0]


def recovery(events: list[dict[str, Any]], killed: float) -> dict[str, float]:
    """Seconds from the death of a rank to the next step, and what they are made of."""
    found = processes(events)
    again = [event for event in found["driver"] if event["ts"] / 1e6 > killed]
    ranks = [found[f"worker {rank}, start 2"] for rank in range(2)]
    known, begun = first(again, "restart")[0], first(again, "worker group")[0]
    imported, met = (max(first(rank, name)[1] for rank in ranks) for name in ("import", "rendezvous"))
    entered, stepped = max(first(rank, "import")[0] for rank in ranks), started(found, ", start 2")
    return {
        "in all": stepped - killed, "until the driver knows": known - killed, "slots": begun - known,
        "until both ranks begin": entered - begun, "imports": imported - entered, "rendezvous": met - imported,
        "checkpoint, recipe, first step": stepped - met,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    spark = session()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        print(f"cold start: {start(trained(spark, folder / 'cold', kill=False)):.2f} s")
        warm, after = [], []
        for number in range(rounds):
            warm.append(start(trained(spark, folder / f"warm{number}", kill=False)))
            events = trained(spark, folder / f"killed{number}", kill=True)
            after.append(recovery(events, float((folder / f"killed{number}" / "killed").read_text())))
    spark.stop()
    print(f"warm start: {statistics.median(warm):.2f} s ({', '.join(f'{seconds:.2f}' for seconds in warm)})")
    for part in after[0]:
        print(f"recovery, {part}: {statistics.median(times[part] for times in after):.2f} s")
    ratio = statistics.median(times["in all"] / seconds for times, seconds in zip(after, warm, strict=True))
    print(f"recovery / warm start: {ratio:.2f} (goal 1.5)")


if __name__ == "__main__":
    main()
