"""Marks of the jobs, which the runner reads: a line for each optimizer step, and the accuracy.

A line that uses this module is not counted as a line of a job. Each mark is one write to a file opened for appending,
some microseconds, so that marks of several processes do not mix. `PEERS_STEP_SECONDS` makes each step longer, and with
`PEERS_EXTRA_MEGABYTES` a worker holds as much memory after its first step.
"""

from __future__ import annotations

import os
import time
from typing import Any

from torch import distributed, optim

_held: list[bytes] = []


def watch(optimizer: optim.Optimizer) -> optim.Optimizer:
    """Return the optimizer, which from now on marks each of its steps."""
    optimizer.register_step_post_hook(lambda *_: _mark_step())
    return optimizer


class MarkedSGD(optim.SGD):
    """SGD for Horovod's estimator, which makes the optimizer anew in each worker, from its class and its state."""

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        if hasattr(self, "synchronize"):  # not the step by which Horovod only makes the state
            _mark_step()
        return result


def report_accuracy(accuracy: float) -> None:
    """Mark the accuracy on the held-out rows."""
    _append(f"accuracy {accuracy:.4f}\n")


def _mark_step() -> None:
    rank = distributed.get_rank() if distributed.is_initialized() else int(os.environ.get("HOROVOD_RANK", "0"))
    _append(f"step {rank} {os.getpid()} {time.time():.4f}\n")
    time.sleep(float(os.environ.get("PEERS_STEP_SECONDS", "0")))
    if not _held and (megabytes := int(os.environ.get("PEERS_EXTRA_MEGABYTES", "0"))):
        _held.append(b"x" * (megabytes << 20))


def _append(line: str) -> None:
    file = os.open(os.environ["PEERS_MARKS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)
