"""How a worker ended, and which failure of a group came first."""

from __future__ import annotations

import socket
import time
import traceback
from dataclasses import dataclass
from typing import Any, Literal

from trainyard.errors import TrainyardError, reason

BROKEN_CONNECTION = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "NCCL",
    "HorovodInternalError",
    "Horovod has been shut down",
)
"""Texts in errors that follow from the failure of another worker."""


class LostWorkerError(TrainyardError):
    """The group ended through no fault of the user's code; it can resume from its last checkpoint."""


@dataclass(frozen=True)
class Outcome:
    """How one worker ended.

    Attributes:
        rank: The number of the worker.
        host: Its host.
        ended_at: When it ended, in seconds since the epoch.
        ended: "done"; "failed" on its own; "disconnected" by the failure of another worker; or "terminated" by SIGTERM.
        result: What a worker that is done returned.
        error: The error of one that is not.
        traceback: The traceback of an error in the user's code.
    """

    rank: int
    host: str
    ended_at: float
    ended: Literal["done", "failed", "disconnected", "terminated"] = "done"
    result: dict[str, Any] | None = None
    error: str | None = None
    traceback: str | None = None

    def describe_failure(self, size: int) -> str:
        """Return the failure as a message for the user, of a group of `size` workers."""
        message = f"rank {self.rank} of {size} on {self.host} failed: {self.error}"
        return message + (f"\n{self.traceback}" if self.traceback else "")


def build_failure(rank: int, error: BaseException) -> Outcome:
    """Return the outcome of a worker that raised `error`, which is being handled."""
    message = reason(error)
    return Outcome(
        rank, socket.gethostname(), time.time(), _classify(error),
        error=message or f"{type(error).__name__}: {error}", traceback=None if message else traceback.format_exc(),
    )  # fmt: skip


def get_result(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the result of rank 0.

    Raises:
        TrainyardError: A worker failed on its own; of several failures the first is reported.
        LostWorkerError: Workers were terminated or disconnected, and none failed on its own.
    """
    order = ("failed", "terminated", "disconnected")
    failures = sorted((o for o in outcomes if o.error), key=lambda o: (order.index(o.ended), o.ended_at))
    if failures:
        first = failures[0]
        kind = TrainyardError if first.ended == "failed" else LostWorkerError
        raise kind(first.describe_failure(len(outcomes)))
    result = next(o.result for o in outcomes if o.rank == 0)
    assert result is not None
    return result


def _classify(error: BaseException) -> Literal["failed", "disconnected", "terminated"]:
    import torch.distributed as dist

    from trainyard.trainer.loop.engine import TerminatedError

    if isinstance(error, TerminatedError):
        return "terminated"
    if isinstance(error, dist.DistError) or any(text in str(error) for text in BROKEN_CONNECTION):
        return "disconnected"
    return "failed"
