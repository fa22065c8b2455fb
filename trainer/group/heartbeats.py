"""The monitor: on the driver, what each rank of the gang is doing now. Ranks that hang are found on it.

A rank has one connection to it: it asks for the driver's time first, and tells where it is each second from then on.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainyard.schemas.worker_progress import WorkerProgress
from trainyard.trainer.group.clock import Offset, offset
from trainyard.trainer.loop.phases import CurrentPhase

now = time.time_ns
"""The clock that the run goes by."""

SECONDS = 1.0
PATIENCE = 10.0
"""For how long a rank tries to reach the monitor."""

ORDER = (
    "start", "import", "rendezvous", "find checkpoint", "set up",
    "data wait", "copy", "forward", "backward", "optimizer", "checkpoint", "validate", "write model",
)  # fmt: skip
"""A rank that waits for others is in a later phase than those it waits for, or in the same."""


@dataclass(frozen=True)
class MonitorAddress:
    """Where ranks reach the monitor, and what they must know to be heard."""

    host: str
    port: int
    secret: bytes


@dataclass(frozen=True)
class Heartbeat:
    """A rank's last word of itself; `since` is when it last entered a phase, by the driver's monotonic clock."""

    host: str
    here: CurrentPhase
    since: float


def stalled(heartbeats: Mapping[int, Heartbeat], at: float, seconds: float) -> str | None:
    """Which ranks the others wait for in vain, if no rank that is behind has moved for `seconds`."""
    if not heartbeats:
        return None
    behind = min(_progress(seen.here) for seen in heartbeats.values())
    late = {rank: seen for rank, seen in heartbeats.items() if _progress(seen.here) == behind}
    if any(at - seen.since < seconds for seen in late.values()):
        return None
    named = " and ".join(
        f"rank {rank} on {seen.host}, in {seen.here.phase!r} for {at - seen.since:.0f} s" for rank, seen in late.items()
    )
    place = next(iter(late.values())).here
    waiting = sorted({seen.here.phase for rank, seen in heartbeats.items() if rank not in late})
    others = f"; the others wait in {' and '.join(map(repr, waiting))}" if waiting else ""
    return f"the gang hangs in epoch {place.epoch + 1}, step {place.step + 1}: {named}{others}"


def _progress(here: CurrentPhase) -> tuple[int, int, int]:
    return here.epoch, here.step, ORDER.index(here.phase)


class HeartbeatMonitor:
    """A context that listens on `host` until its end."""

    def __init__(self, host: str) -> None:
        self._heartbeats: dict[int, Heartbeat] = {}
        self._secret = secrets.token_hex(16).encode()
        monitor = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                rank = -1
                for line in self.rfile:
                    secret, _, message = line.partition(b" ")
                    if not hmac.compare_digest(secret, monitor._secret):
                        return
                    told = json.loads(message)
                    if told.pop("ask", None):
                        self.wfile.write(f"{now()}\n".encode())
                        continue
                    rank = told.pop("rank")
                    monitor._see(rank, told.pop("host"), CurrentPhase(**told))
                monitor._heartbeats.pop(rank, None)  # it is done, or dead: Spark knows which

        self._server = socketserver.ThreadingTCPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self.address = MonitorAddress(host, self._server.server_address[1], self._secret)

    def __enter__(self) -> HeartbeatMonitor:
        threading.Thread(target=self._server.serve_forever, name="monitor", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def stalled(self, seconds: float) -> str | None:
        """See the function of this name."""
        return stalled(dict(self._heartbeats), time.monotonic(), seconds)

    def progress(self) -> tuple[WorkerProgress, ...]:
        """Where each rank is that has told of itself, and is not done."""
        seen = sorted(dict(self._heartbeats).items())
        return tuple(
            WorkerProgress(rank=rank, host=it.host, phase=it.here.phase, epoch=it.here.epoch + 1, step=it.here.step)
            for rank, it in seen
        )

    def _see(self, rank: int, host: str, here: CurrentPhase) -> None:
        before = self._heartbeats.get(rank)
        since = before.since if before and before.here.entered == here.entered else time.monotonic()
        self._heartbeats[rank] = Heartbeat(host, here, since)


class HeartbeatSender:
    """A context in which a rank tells the monitor where it is. Without a connection it trains all the same.

    `clock` is the driver's clock, compared with this host's.
    """

    def __init__(self, address: MonitorAddress, rank: int, host: str, here: CurrentPhase) -> None:
        self._address, self._rank, self._host, self._here = address, rank, host, here
        self._over = threading.Event()
        self._socket: socket.socket | None = None
        self.clock = Offset()

    def __enter__(self) -> HeartbeatSender:
        try:
            self._socket = socket.create_connection((self._address.host, self._address.port), PATIENCE)
            answers = self._socket.makefile("rb")

            def ask() -> int:
                self._send(ask=True)
                return int(answers.readline())

            self.clock = offset(ask)
        except (OSError, ValueError) as error:
            print(f"the driver cannot be reached at {self._address.host}:{self._address.port}: {error}", flush=True)
            return self
        threading.Thread(target=self._tell, name="reporter", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._socket:
            self._socket.close()

    def _tell(self) -> None:
        here = self._here
        while not self._over.is_set():
            try:
                self._send(
                    rank=self._rank, host=self._host, phase=here.phase, entered=here.entered, epoch=here.epoch,
                    step=here.step,
                )  # fmt: skip
            except OSError:
                return
            self._over.wait(SECONDS)

    def _send(self, **told: Any) -> None:
        assert self._socket
        self._socket.sendall(self._address.secret + b" " + json.dumps(told).encode() + b"\n")
