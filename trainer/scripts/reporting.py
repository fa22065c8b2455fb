"""What a script calls: report metrics to its worker, and have its checkpoints stored.

Each call does nothing where no worker of a ScriptOperator has started the script. The standard library is enough, so
that a script imports this at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import SupportsFloat

from trainyard.trainer.scripts import snapshots

CHECKPOINTS = "TRAINYARD_CHECKPOINTS"
"""The variable with the folder whose files are restored before a script starts."""
REPORTS = "TRAINYARD_REPORTS"
"""The variable with the named pipe that the worker reads reports from: a JSON object a line."""
KNOWN = "known.json"
"""Beside the pipe: the states of the files that are stored. It is missing where the files of a worker are not."""
SNAPSHOT = "snapshot"
"""Beside the pipe: the snapshot that the worker stores, and then removes."""
CALLS = "calls"
"""Beside the pipe: how many snapshots were begun. Whoever takes one has a lock on it."""
MAX_BYTES = 4096
"""The length of a report: the kernel writes so many bytes to a pipe at once, whoever else writes to it."""
PAUSE_SECONDS = 0.05
_threads: set[int] = set()
"""The threads of this process that take a snapshot."""


def report_metrics(*, epoch: int | None = None, step: int | None = None, **metrics: SupportsFloat) -> None:
    """Report metrics of a script, which the pages, the report and the result of its task show.

    Only what rank 0 reports is shown, so average over workers first. A call of any other worker shows that it makes
    progress. Outside of a ScriptOperator it does nothing.

    Args:
        epoch: The epoch, from 1. Metrics that are reported with one are a point of the learning curves; of several
            reports of an epoch the last value of each metric counts.
        step: The step of the epoch, or of the training. A script that never names an epoch has learning curves by step,
            or by call if it names no step either.
        metrics: Numbers by their names, for example `loss=0.1`; tensors and arrays with one element are numbers too.

    Raises:
        ValueError: A count is too small, or the names and numbers have more than 4,000 characters.
    """
    if epoch is not None and epoch < 1:
        raise ValueError(f"epoch={epoch}: epochs count from 1; add 1 to those that count from 0.")
    if step is not None and step < 0:
        raise ValueError(f"step={step} is negative; count from 0.")
    message = {name: float(value) for name, value in metrics.items()}
    counts = {"epoch": epoch, "step": step}
    _send({name: int(count) for name, count in counts.items() if count is not None} | message)


def store_checkpoints() -> None:
    """Store the files in the folder of the variable TRAINYARD_CHECKPOINTS, as the version to resume from.

    Files that have changed since the last call are copied; then the call returns, and they are written to the storage
    in the background. It waits for the call before. By default it does so on rank 0, and nothing on other workers; with
    `checkpoints_of="all ranks"` all workers call it equally often. Outside of a ScriptOperator it does nothing.

    Raises:
        trainyard.trainer.scripts.snapshots.SnapshotError: A file is being written, or is a link to a folder.
    """
    _send({})
    if (pipe := os.environ.get(REPORTS)) is None:
        return
    folder = Path(pipe).parent
    if threading.get_ident() in _threads:
        return  # a signal handler has interrupted a call, which stores the files; or they are stored at the end
    while (folder / KNOWN).exists():
        while (folder / SNAPSHOT).exists():
            time.sleep(PAUSE_SECONDS)
        with _lock(folder / CALLS) as calls:
            if (folder / SNAPSHOT).exists():
                continue  # of another thread or process of this worker
            call = int(os.pread(calls, MAX_BYTES, 0) or 0) + 1
            os.pwrite(calls, str(call).encode(), 0)
            known = snapshots.read_known(folder / KNOWN)
            snapshots.take(Path(os.environ[CHECKPOINTS]), known, folder / SNAPSHOT, call)
            return


@contextmanager
def _lock(file: Path) -> Iterator[int]:
    """Open a file that one thread of all processes has at a time, and yield its descriptor."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _threads.add(threading.get_ident())
        yield descriptor
    finally:
        _threads.discard(threading.get_ident())
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # a process that was forked meanwhile has the descriptor too
        os.close(descriptor)


def _send(message: dict[str, float]) -> None:
    line = json.dumps(message).encode() + b"\n"
    if len(line) > MAX_BYTES:
        raise ValueError(f"a report of {len(line):,} bytes is too long; report fewer metrics, or shorter names")
    if (pipe := os.environ.get(REPORTS)) is None:
        return
    with suppress(OSError):  # the worker has ended, and so does this process
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.set_blocking(descriptor, True)
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
