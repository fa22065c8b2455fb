"""An example run: four stages, a training of two workers over several epochs, and its resource usage."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.plugins.results import output
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.usage.resource_usage import ResourceUsage

SECOND = 1_000_000
STARTED_AT = 1_795_000_000.0
PHASES = (
    ("data wait", 0.05),
    ("forward", 0.3),
    ("backward", 0.4),
    ("wait for communication", 0.15),
    ("optimizer", 0.1),
)


@dataclass
class Events:
    """Events of the processes of a run, as `events.read` returns them."""

    trace: list[dict[str, Any]]

    def process(self, pid: int, tid: int, task: str, name: str) -> None:
        """Name a process."""
        for key, value in (("process_name", task), ("thread_name", name)):
            self.trace.append({"ph": "M", "name": key, "ts": 0, "pid": pid, "tid": tid, "args": {"name": value}})

    def span(self, pid: int, tid: int, name: str, start: float, seconds: float, **args: Any) -> None:
        """Add a span that starts `start` seconds after the run."""
        at = {"pid": pid, "tid": tid, "ts": int((STARTED_AT + start) * SECOND)}
        self.trace.append({"ph": "X", "name": name, "dur": int(seconds * SECOND), "args": args} | at)

    def counter(self, pid: int, tid: int, name: str, at: float, **values: float) -> None:
        """Add the values of a counter."""
        self.trace.append(
            {"ph": "C", "name": name, "pid": pid, "tid": tid, "ts": int((STARTED_AT + at) * SECOND), "args": values}
        )


def epoch_metrics(epoch: int, scale: float = 1.0) -> dict[str, float]:
    """Return the metrics of an epoch, counted from 1; the validation loss is the smallest in the fifth."""
    return {
        "loss": scale * math.exp(-epoch / 2),
        "validation_loss": scale * (math.exp(-epoch / 2) + 0.003 * abs(epoch - 5)),
        "accuracy": 1 - 0.4 * math.exp(-epoch / 1.5),
        "rows_per_second": 8000.0 + 300 * math.sin(epoch),
        "bytes_per_step": 116_264.0,
    }


def build_trace(epochs: int = 8, steps: int = 12, workers: int = 2) -> list[dict[str, Any]]:
    """Return the events of the run; a step takes 0.1 s."""
    events = Events([])
    for pid, (task, start, length) in enumerate((("evaluate", 45, 20), ("export", 0, 20), ("predict", 68, 15)), 1):
        events.process(pid, 0, task, "driver")
        events.span(pid, 0, "start Spark", start, 5)
        events.span(pid, 0, {"export": "write dataset"}.get(task, task), start + 6, length - 6)
    events.process(4, 0, "train", "driver")
    events.span(4, 0, "worker group", 22, 20, omitted=0)
    for worker in range(1, workers + 1):
        events.process(4, worker, "train", f"worker {worker - 1}")
        events.span(4, worker, "set up", 22, 4)
        for epoch in range(1, epochs + 1):
            begin = 26 + (epoch - 1) * (0.1 * steps + 0.3)
            for step in range(steps):
                at = begin + 0.1 * step
                for name, share in PHASES:
                    events.span(4, worker, name, at, 0.1 * share)
                    at += 0.1 * share
                events.span(4, worker, "communication", begin + 0.1 * step + 0.05, 0.04)
            events.span(4, worker, "validate", begin + 0.1 * steps, 0.2)
            seconds = {name: 0.1 * share * steps for name, share in PHASES} | {"validate": 0.2}
            events.counter(4, worker, "seconds", begin, **seconds)
            if worker == 1:
                events.counter(4, 1, "epoch", begin, epoch=epoch, **epoch_metrics(epoch))
    return sorted(events.trace, key=lambda event: event["ts"])


def build_records(directory: str, dag_id: str = "digits", run_id: str = "r1", epochs: int = 8) -> list[RunRecord]:
    """Return the records of the run."""
    return list(_records(directory, dag_id, run_id, epochs))


def _records(directory: str, dag_id: str, run_id: str, epochs: int) -> Iterator[RunRecord]:
    train = output(
        "train", uri=f"{directory}/model", epochs=epochs, best_epoch=5, metrics=epoch_metrics(5),
        seconds={name: 12 * share for name, share in PHASES} | {"set up": 4.0},
        bottleneck="Compute-bound: 80% of the time goes into forward, backward and optimizer; more workers would "
        "help. After it, communication costs 15%.",
        limited_by="Compute-bound: 80% of the time goes into forward, backward and optimizer",
        advice="more workers would help",
    )  # fmt: skip
    evaluate = output(
        "evaluate", metrics={"accuracy": 0.9947, "f1": 0.9955}, evaluation=f"{directory}/evaluation.json",
        intervals={"accuracy": [0.9833, 1.0], "f1": [0.9843, 1.0]},
    )  # fmt: skip
    export = output("export", uri=f"{directory}/dataset", rows=1797, record_batches=10, shards=6, bytes=497_664)
    predict = output("predict", rows=1797, uri=f"{directory}/predictions", model=f"{directory}/model")
    stages = (
        ("export", 0.0, 20.0, export),
        ("train", 22.0, 20.0, train),
        ("evaluate", 45.0, 20.0, evaluate),
        ("predict", 68.0, 15.0, predict),
    )
    for number, (task, start, seconds, returned) in enumerate(stages):
        yield RunRecord(
            task_key=TaskKey(dag_id=dag_id, run_id=run_id, task_id=task, directory=directory), job=task,
            application=f"application_1795000000_000{number}", started_at=STARTED_AT + start, seconds=seconds,
            status="succeeded", output=returned,
        )  # fmt: skip


def change_record(record: RunRecord, output: dict[str, Any] | None = None, **fields: Any) -> RunRecord:
    """Return a record with other fields, of which `output` are some of its result."""
    known = record.model_dump(mode="json")
    return RunRecord.model_validate(known | fields | {"output": known["output"] | (output or {})})


def build_usages(records: list[RunRecord], gpus: float = 0.0) -> list[ResourceUsage]:
    """Return the resource usage of the applications: two cores each, busy for half of the time."""
    return [
        ResourceUsage(
            task_key=record.task_key, application=record.application, queue="train", started_at=record.started_at,
            seconds=record.seconds, busy_seconds=record.seconds / 2, core_seconds=2 * record.seconds,
            gpu_seconds=gpus * record.seconds,
        )
        for record in records
    ]  # fmt: skip
