"""Heartbeats: the driver receives the current phase of each worker every second, and detects workers that hang.

A worker has one connection to the driver for them. It requests the driver's time first, and sends heartbeats from then
on, the last one when it ends. A worker that fails sends its error before its connections to the other workers break, so
that the first cause is known.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from trainyard.schemas.runs import phases
from trainyard.schemas.runs.worker_progress import TrainingProgress, WorkerProgress
from trainyard.trainer.connections.channel import Channel, DriverAddress, Session
from trainyard.trainer.connections.clock import Offset, measure_offset
from trainyard.trainer.group.outcome import Outcome
from trainyard.trainer.measuring.phases import CurrentPhase

now = time.time_ns
"""The clock of the driver, which the events of all workers use."""

SERVICE = "heartbeats"
INTERVAL_SECONDS = 1.0
LAST_HEARTBEAT_SECONDS = 2.0
"""How long a worker that ends may wait until the driver has received its last heartbeat."""
MAX_CHARACTERS = 1 << 20
"""How much of an error and its traceback is sent."""


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
        f"rank {rank} on {beat.host}, in '{beat.current.phase}' for {at - beat.since:.0f} s"
        for rank, beat in late.items()
    )
    current = next(iter(late.values())).current
    waiting = sorted({beat.current.phase.value for rank, beat in heartbeats.items() if rank not in late})
    others = f"; the others wait in {' and '.join(map(repr, waiting))}" if waiting else ""
    return f"the worker group hangs in epoch {current.epoch + 1}, step {current.step + 1}: {workers}{others}"


def _get_position(current: CurrentPhase) -> tuple[int, int, int]:
    return current.epoch, current.step, current.phase.position


class HeartbeatMonitor:
    """The last heartbeats and the failures of a group's workers, on the driver."""

    def __init__(self) -> None:
        self._heartbeats: dict[int, Heartbeat] = {}
        self._training: TrainingProgress | None = None
        self._failures: list[Outcome] = []

    async def serve(self, session: Session) -> None:
        """Receive the messages of one worker until it ends."""
        rank = -1
        try:
            while True:
                message = await session.receive()
                if message.pop("request_time", None):
                    await session.send(now())
                    continue
                if failure := message.pop("failure", None):
                    self._failures.append(Outcome(**failure))
                    await session.send("received")
                    continue
                rank, host, training, is_last = (message.pop(name) for name in ("rank", "host", "training", "is_last"))
                phase, progress = phases.BY_NAME[message.pop("phase")], training and TrainingProgress(**training)
                current = CurrentPhase(phase, **message, training=progress)
                self._record(rank, host, current)
                if is_last:
                    await session.send("received")
        finally:
            self._heartbeats.pop(rank, None)  # the worker ended or failed: Spark reports which

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

    def __init__(self, address: DriverAddress, rank: int, host: str, current: CurrentPhase) -> None:
        self._address, self._rank, self._host, self._current = address, rank, host, current
        self._stopped = threading.Event()
        self._channel: Channel | None = None
        self.clock = Offset()

    def __enter__(self) -> HeartbeatSender:
        try:
            channel = Channel(self._address, SERVICE)

            def request_time() -> int:
                channel.send({"request_time": True})
                return int(channel.receive())

            self.clock = measure_offset(request_time)
        except (OSError, ValueError) as error:
            print(
                f"cannot connect to the driver at {self._address.host}:{self._address.port}: {error}. Training "
                "continues without heartbeats.",
                flush=True,
            )
            return self
        self._channel = channel
        self._thread = threading.Thread(target=self._run, args=(channel,), name="heartbeats", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._channel is None:
            return
        self._thread.join(LAST_HEARTBEAT_SECONDS)
        self._channel.shut_down()
        self._thread.join()
        self._channel.close()

    def report_failure(self, outcome: Outcome) -> None:
        """Send the failure of this worker to the driver, and wait until it has arrived."""
        if self._channel is None:
            return
        error, traceback = (text and text[:MAX_CHARACTERS] for text in (outcome.error, outcome.traceback))
        with suppress(OSError):
            self._channel.send({"failure": asdict(replace(outcome, error=error, traceback=traceback))})
            self._channel.receive()

    def _run(self, channel: Channel) -> None:
        with suppress(OSError):  # the driver does not answer any more
            while not self._stopped.is_set():
                self._send_heartbeat(channel)
                self._stopped.wait(INTERVAL_SECONDS)
            self._send_heartbeat(channel, is_last=True)
            channel.receive()

    def _send_heartbeat(self, channel: Channel, is_last: bool = False) -> None:
        current = self._current
        training = current.training.model_dump() if current.training else None
        channel.send({
            "rank": self._rank, "host": self._host, "phase": current.phase, "entered": current.entered,
            "epoch": current.epoch, "step": current.step, "training": training, "is_last": is_last,
        })  # fmt: skip
