"""How a worker ended, and which failure came first."""

from __future__ import annotations

import socket
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from trainyard.errors import reason

if TYPE_CHECKING:
    pass


BROKEN = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "NCCL",
    "HorovodInternalError",
    "Horovod has been shut down",
)


@dataclass(frozen=True)
class Outcome:
    """What became of one rank.

    `ended` says how: it is done; it failed by itself; the connection to another rank broke, which that one's
    failure explains; or it was asked to end.
    """

    rank: int
    host: str
    ended_at: float
    ended: Literal["done", "failed", "cut off", "terminated"] = "done"
    result: dict[str, Any] | None = None
    error: str | None = None
    traceback: str | None = None

    def told(self, size: int) -> str:
        """The failure, addressed to the user, of a gang of `size` ranks."""
        message = f"rank {self.rank} of {size} on {self.host} failed: {self.error}"
        return message + (f"\n{self.traceback}" if self.traceback else "")


def failure(rank: int, error: BaseException) -> Outcome:
    """What became of a rank whose work raised `error`, which is being handled."""
    told = reason(error)
    return Outcome(
        rank, socket.gethostname(), time.time(), _ended(error),
        error=told or f"{type(error).__name__}: {error}", traceback=None if told else traceback.format_exc(),
    )  # fmt: skip


def _ended(error: BaseException) -> Literal["failed", "cut off", "terminated"]:
    import torch.distributed as dist

    from trainyard.trainer.loop.engine import TerminatedError

    if isinstance(error, TerminatedError):
        return "terminated"
    if isinstance(error, dist.DistError) or any(sign in str(error) for sign in BROKEN):
        return "cut off"
    return "failed"
