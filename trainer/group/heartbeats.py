"""Heartbeats: the driver receives the current phase of each worker every second, and detects workers that hang.

A worker has one connection to the driver. It requests the driver's time first, and sends heartbeats from then on, the
last one when it ends. A worker that fails sends its error before its connections to the other workers break, so that
the first cause is known.
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
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from trainyard.schemas.worker_progress import TrainingProgress, WorkerProgress
from trainyard.trainer.group.clock import Offset, measure_offset
from trainyard.trainer.group.outcome import Outcome
from trainyard.trainer.loop.phases import CurrentPhase

now = time.time_ns
"""The clock of the driver, which the events of all workers use."""

INTERVAL_SECONDS = 1.0
CONNECT_SECONDS = 10.0
LAST_HEARTBEAT_SECONDS = 2.0
"""How long a worker that ends may wait until the driver has received its last heartbeat."""
SHUTDOWN_SECONDS = 0.05
"""How long the monitor may take to notice that it is to end; each training waits for it."""

ORDER = (
    "start", "import", "rendezvous", "find checkpoint", "set up",
    "data wait", "copy", "forward", "backward", "optimizer", "validate", "write model", "checkpoint",
)  # fmt: skip
"""A worker that waits for others is in a later phase than those it waits for, or in the same.

At the end of an epoch, rank 0 writes its model while the others wait to save a checkpoint.
"""


@dataclass(frozen=True)
class MonitorAddress:
    """Where workers connect to the monitor, and the secret that they send with each message."""

    host: str
    port: int
    secret: bytes


@dataclass(frozen=True)
class Heartbeat:
    """The last message of a worker.

    Attributes:
        host: The worker's host.
        current: Its phase.
        since: When it entered that phase, by the driver's monotonic clock.
    """

    host: str
    current: CurrentPhase
    since: float


def describe_hang(heartbeats: Mapping[int, Heartbeat], at: float, seconds: float) -> str | None:
    """Return which workers the others wait for, if the slowest ones have made no progress for `seconds`, else None.

    Args:
        heartbeats: The last heartbeat of each worker, by rank.
        at: The current time of the driver's monotonic clock.
        seconds: The time without progress that counts as a hang.
    """
    if not heartbeats:
        return None
    slowest = min(_get_position(beat.current) for beat in heartbeats.values())
    late = {rank: beat for rank, beat in heartbeats.items() if _get_position(beat.current) == slowest}
    if any(at - beat.since < seconds for beat in late.values()):
        return None
    workers = " and ".join(
        f"rank {rank} on {beat.host}, in {beat.current.phase!r} for {at - beat.since:.0f} s"
        for rank, beat in late.items()
    )
    current = next(iter(late.values())).current
    waiting = sorted({beat.current.phase for rank, beat in heartbeats.items() if rank not in late})
    others = f"; the others wait in {' and '.join(map(repr, waiting))}" if waiting else ""
    return f"the worker group hangs in epoch {current.epoch + 1}, step {current.step + 1}: {workers}{others}"


def _get_position(current: CurrentPhase) -> tuple[int, int, int]:
    return current.epoch, current.step, ORDER.index(current.phase)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 1024  # the workers of a barrier stage connect at once


class HeartbeatMonitor:
    """A server on the driver that receives heartbeats; a context manager.

    Attributes:
        address: Where workers connect.
    """

    def __init__(self, host: str) -> None:
        self._heartbeats: dict[int, Heartbeat] = {}
        self._training: TrainingProgress | None = None
        self._failures: list[Outcome] = []
        self._secret = secrets.token_hex(16).encode()
        monitor = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                rank = -1
                try:
                    for line in self.rfile:
                        secret, _, text = line.partition(b" ")
                        if not hmac.compare_digest(secret, monitor._secret):
                            return
                        message = json.loads(text)
                        if message.pop("request_time", None):
                            self.wfile.write(f"{now()}\n".encode())
                            continue
                        if failure := message.pop("failure", None):
                            monitor._failures.append(Outcome(**failure))
                            self.wfile.write(b"received\n")
                            continue
                        rank, host, training, is_last = (
                            message.pop(name) for name in ("rank", "host", "training", "is_last")
                        )
                        current = CurrentPhase(**message, training=training and TrainingProgress(**training))
                        monitor._record(rank, host, current)
                        if is_last:
                            self.wfile.write(b"received\n")
                except ConnectionError:
                    pass  # the worker was killed
                finally:
                    monitor._heartbeats.pop(rank, None)  # the worker ended or failed: Spark reports which

        self._server = _Server((host, 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(SHUTDOWN_SECONDS,), name="monitor", daemon=True
        )
        self.address = MonitorAddress(host, self._server.server_address[1], self._secret)

    def __enter__(self) -> HeartbeatMonitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def describe_hang(self, seconds: float) -> str | None:
        """Return which workers hang, None if the group makes progress; see the function of this name."""
        return describe_hang(dict(self._heartbeats), time.monotonic(), seconds)

    def get_progress(self) -> tuple[WorkerProgress, ...]:
        """Return the phase of each worker that has sent a heartbeat and is still connected."""
        heartbeats = sorted(dict(self._heartbeats).items())
        return tuple(
            WorkerProgress(
                rank=rank, host=beat.host, phase=beat.current.phase, epoch=beat.current.epoch + 1,
                step=beat.current.step,
            )
            for rank, beat in heartbeats
        )  # fmt: skip

    def get_training(self) -> TrainingProgress | None:
        """Return the progress of the training, as rank 0 has sent it last; None if it has not."""
        return self._training

    def get_failures(self) -> list[Outcome]:
        """Return the failures that workers have reported, in the order of their arrival."""
        return list(self._failures)

    def _record(self, rank: int, host: str, current: CurrentPhase) -> None:
        last = self._heartbeats.get(rank)
        since = last.since if last and last.current.entered == current.entered else time.monotonic()
        self._heartbeats[rank] = Heartbeat(host, current, since)
        self._training = current.training or self._training


class HeartbeatSender:
    """Send the phase of a worker to the monitor every second and when it ends; a context manager.

    Without a connection the worker trains without heartbeats.

    Attributes:
        clock: The offset of this host's clock from the driver's.
    """

    def __init__(self, address: MonitorAddress, rank: int, host: str, current: CurrentPhase) -> None:
        self._address, self._rank, self._host, self._current = address, rank, host, current
        self._stopped = threading.Event()
        self._sending = threading.Lock()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
        self.clock = Offset()

    def __enter__(self) -> HeartbeatSender:
        try:
            self._socket = socket.create_connection((self._address.host, self._address.port), CONNECT_SECONDS)
            self._answers = self._socket.makefile("rb")

            def request_time() -> int:
                self._send(request_time=True)
                return int(self._answers.readline())

            self.clock = measure_offset(request_time)
        except (OSError, ValueError) as error:
            print(
                f"cannot connect to the driver at {self._address.host}:{self._address.port}: {error}. Training "
                "continues without heartbeats.",
                flush=True,
            )
            return self
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._thread.ident:
            self._thread.join(LAST_HEARTBEAT_SECONDS)
        if self._socket:
            with suppress(OSError):  # the driver has closed it
                self._socket.shutdown(socket.SHUT_RDWR)  # ends a send that waits for the driver
        if self._thread.ident:
            self._thread.join()
        if self._socket:
            self._socket.close()

    def report_failure(self, outcome: Outcome) -> None:
        """Send the failure of this worker to the driver, and wait until it has arrived."""
        if self._socket is None:
            return
        with suppress(OSError):
            self._send(failure=asdict(outcome))
            self._answers.readline()

    def _run(self) -> None:
        with suppress(OSError):  # the driver does not answer any more
            while not self._stopped.is_set():
                self._send_heartbeat()
                self._stopped.wait(INTERVAL_SECONDS)
            self._send_heartbeat(is_last=True)
            self._answers.readline()

    def _send_heartbeat(self, is_last: bool = False) -> None:
        current = self._current
        self._send(
            rank=self._rank, host=self._host, phase=current.phase, entered=current.entered,
            epoch=current.epoch, step=current.step,
            training=current.training.model_dump() if current.training else None, is_last=is_last,
        )  # fmt: skip

    def _send(self, **message: Any) -> None:
        assert self._socket
        with self._sending:
            self._socket.sendall(self._address.secret + b" " + json.dumps(message).encode() + b"\n")
