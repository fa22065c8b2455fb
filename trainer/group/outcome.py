"""How a worker ended, and which failure of a group came first."""

from __future__ import annotations

import re
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainyard.errors import TrainyardError, UnavailableError, reason
from trainyard.trainer.connections.clock import Offset

ERROR_DEVICE_ASSERT = 710
"""CUDA's number of a failed assertion in a kernel, such as an index out of range."""


class LostWorkerError(TrainyardError):
    """The group ended through no fault of the user's code; it can resume from its last checkpoint."""


class MemoryKillError(LostWorkerError):
    """YARN killed a worker for its memory. From the same checkpoint, another one in such a container ends as well."""


Ended = Literal["done", "failed", "lost", "terminated", "disconnected"]


@dataclass(frozen=True)
class Outcome:
    """How one worker ended.

    Attributes:
        rank: The number of the worker.
        host: Its host.
        ended_at: When it ended, in seconds since the epoch, by the driver's clock.
        ended: "done"; "failed" by the user's code; "lost" by its GPU or the storage; "terminated" by SIGTERM; or
            "disconnected" by the failure of another worker.
        result: What a worker that is done returned.
        error: The error of one that is not.
        traceback: The traceback of an error in the user's code.
    """

    rank: int
    host: str
    ended_at: float
    ended: Ended = "done"
    result: dict[str, Any] | None = None
    error: str | None = None
    traceback: str | None = None

    def describe_failure(self, size: int) -> str:
        """Return the failure as a message for the user, of a group of `size` workers.

        It has no blank lines: Spark ends a message at the first one.
        """
        message = f"rank {self.rank} of {size} on {self.host} failed: {self.error}\n{self.traceback or ''}"
        return "\n".join(line for line in message.splitlines() if line.strip())

    @property
    def is_cause(self) -> bool:
        """Whether the group ends because of this worker, and not this worker because of the group."""
        return self.ended in ("failed", "lost")


def build_failure(rank: int, error: BaseException, clock: Offset) -> Outcome:
    """Return the outcome of a worker that raised `error`, which is being handled.

    Args:
        rank: The number of the worker.
        error: The error.
        clock: The offset of its clock from the driver's.
    """
    message = reason(error)
    return Outcome(
        rank, socket.gethostname(), time.time() + clock.behind_ns / 1e9, _classify(error),
        error=message or f"{type(error).__name__}: {error}", traceback=None if message else traceback.format_exc(),
    )  # fmt: skip


def get_result(outcomes: Sequence[Outcome], size: int) -> dict[str, Any]:
    """Return the result of rank 0.

    Args:
        outcomes: The outcomes of the workers that have one.
        size: The number of workers.

    Raises:
        TrainyardError: A worker failed by the user's code; of several failures the first is reported.
        LostWorkerError: Workers were lost, terminated or disconnected, and none failed.
    """
    order = ("failed", "lost", "terminated", "disconnected")
    failures = sorted((o for o in outcomes if o.error), key=lambda o: (order.index(o.ended), o.ended_at))
    if failures:
        first = failures[0]
        kind = TrainyardError if first.ended == "failed" else LostWorkerError
        raise kind(first.describe_failure(size))
    result = next(o.result for o in outcomes if o.rank == 0)
    assert result is not None
    return result


def build_loss(size: int, report: str) -> LostWorkerError:
    """Return the error for a worker whose process ended without one.

    Args:
        size: The number of workers.
        report: Spark's error. Its first line says that the stage failed, a later one why an executor was lost.
    """
    task = re.search(r"barrier task ResultTask\(\d+, (\d+)\)", report)
    worker = f"rank {task[1]} of {size}" if task else f"one of the {size} workers"
    lines = [
        line.strip()
        for word in ("ExecutorLostFailure", "Exception", "exit")
        for line in report.splitlines()
        if word in line
    ]
    kind = MemoryKillError if re.search(r"exceeding (physical|virtual) memory limits", report) else LostWorkerError
    return kind(
        f"{worker} ended without an error: its process was killed, perhaps for memory, or crashed. "
        f"Spark reports: {lines[0] if lines else report[:300]}"
    )


def _classify(error: BaseException) -> Ended:
    """Return how a worker ended, by the type of its error. torch may be what cannot be imported."""
    torch, run = sys.modules.get("torch"), sys.modules.get("trainyard.trainer.run.signals.interruptions")
    horovod = sys.modules.get("horovod.common.exceptions")
    if run and isinstance(error, run.TerminatedError):
        return "terminated"
    if isinstance(error, UnavailableError):
        return "lost"
    if torch and isinstance(error, getattr(torch, "AcceleratorError", ())):
        return "failed" if getattr(error, "error_code", None) == ERROR_DEVICE_ASSERT else "lost"
    if torch and isinstance(error, torch.distributed.DistError):
        return "disconnected"
    if horovod and isinstance(error, horovod.HorovodInternalError):
        return "disconnected"
    # gloo has no type of its own.
    is_gloo = type(error) is RuntimeError and "gloo/transport" in str(error)
    return "disconnected" if is_gloo else "failed"
