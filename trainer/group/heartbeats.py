"""Heartbeats: the driver receives the current phase of each worker every second, and detects workers that hang.

A worker has one connection to the driver for them. It requests the driver's time first, and sends heartbeats from then
on, the last one when it ends. A worker that fails sends its error before its connections to the other workers break, so
that the first cause is known.

The driver answers each heartbeat. A worker without an answer connects again: after a cable was cut, TCP would send what
was lost up to twice as late as that took. So a worker that is silent for longer than the driver waits is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from pydantic import TypeAdapter

from trainyard.errors import TrainyardError
from trainyard.schemas.runs import phases
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.runs.worker_progress import ScriptProgress, TrainingProgress, WorkerProgress
from trainyard.trainer.connections.channel import CONNECT_SECONDS, Channel, DriverAddress, Session
from trainyard.trainer.connections.clock import Offset, measure_offset
from trainyard.trainer.group.outcome import Outcome
from trainyard.trainer.measuring.phases import CurrentPhase

now = time.time_ns
"""The clock of the driver, which the events of all workers use."""

SILENCE_SECONDS = "spark.trainyard.silenceSeconds"
"""The setting for the seconds without a heartbeat after which a worker is lost, and its executor is removed."""
DEFAULT_SILENCE_SECONDS = 22.0
"""A cable that is cut for 20 s is survived: a worker connects again within a second or two after it."""
ALL_SILENT_FACTOR = 3.0
"""How much longer the driver waits if the workers of all of several hosts are silent."""
SERVICE = "heartbeats"
INTERVAL_SECONDS = 1.0
IMPORTING = (Phase.START, Phase.IMPORT)
IMPORTING_SILENCE_SECONDS = 120.0
"""How long a worker that imports may be silent, if the setting is not longer."""
IMPORTING_INTERVAL_SECONDS = 0.1
"""How often a worker that imports sends heartbeats, so that the driver soon knows that it no longer does."""
ANSWER_SECONDS = 3.0
"""How long a worker waits for an answer, or for a new connection, before it connects again."""
PAUSED_SECONDS = 5.0
"""If the driver has not looked at heartbeats for so long, it did not run itself, and no worker counts as silent."""
LAST_HEARTBEAT_SECONDS = 2.0
"""How long a worker that ends may wait until the driver has received its last heartbeat."""
MAX_CHARACTERS = 1 << 20
"""How much of an error and its traceback is sent."""
_PROGRESS: TypeAdapter[TrainingProgress | ScriptProgress | None] = TypeAdapter(TrainingProgress | ScriptProgress | None)


def parse_silence_seconds(text: str | None) -> float:
    """Return the value of the setting `SILENCE_SECONDS`, or its default. Raises TrainyardError for another one."""
    if text is None:
        return DEFAULT_SILENCE_SECONDS
    with suppress(ValueError):
        if (seconds := float(text)) > 0:
            return seconds
    raise TrainyardError(f"conf: {SILENCE_SECONDS}={text!r} is no number of seconds. Write '60', for example.")


@dataclass(frozen=True)
class Heartbeat:
    """The last message of a worker.

    Attributes:
        host: The worker's host.
        current: Its phase.
        since: When it entered that phase, by the driver's monotonic clock.
        received: When the message arrived, by that clock.
    """

    host: str
    current: CurrentPhase
    since: float
    received: float = 0.0


def find_silent(heartbeats: Mapping[int, Heartbeat], before: float, importing_before: float) -> list[int]:
    """Return the workers whose last heartbeat arrived before a time of the driver's monotonic clock, sorted.

    Args:
        heartbeats: The last heartbeat of each worker, by rank.
        before: The time.
        importing_before: The time for workers that import: loading large libraries may hold Python's lock for long.
    """
    return sorted(
        rank
        for rank, beat in heartbeats.items()
        if beat.received < (importing_before if beat.current.phase in IMPORTING else before)
    )


def describe_hang(heartbeats: Mapping[int, Heartbeat], at: float, seconds: float) -> str | None:
    """Return which workers the others wait for, if the slowest ones have made no progress for `seconds`, else None.

    Workers that are not judged are left out. Scripts need not wait for each other, and may report steps or not,
    so all of them must be silent, and the one that is so for longest is named first.

    Args:
        heartbeats: The last heartbeat of each worker, by rank.
        at: The current time of the driver's monotonic clock.
        seconds: The time without progress that counts as a hang.
    """
    heartbeats = {rank: beat for rank, beat in heartbeats.items() if beat.current.is_judged}
    if not heartbeats:
        return None
    slowest = min(_get_position(beat.current) for beat in heartbeats.values())
    late = {rank: beat for rank, beat in heartbeats.items() if _get_position(beat.current) == slowest}
    scripts = {rank: beat for rank, beat in heartbeats.items() if beat.current.phase is Phase.SCRIPT}
    late = dict(sorted(scripts.items(), key=lambda each: each[1].since)) or late  # their steps need not be comparable
    if any(at - beat.since < seconds for beat in late.values()):
        return None
    workers = " and ".join(
        f"rank {rank} on {beat.host}, in '{beat.current.phase}' for {at - beat.since:.0f} s"
        for rank, beat in late.items()
    )
    if scripts:
        silence = at - max(beat.since for beat in scripts.values())
        return (
            f"the worker group hangs: no script has called report_metrics or store_checkpoints for {silence:.0f} s; "
            f"{workers}"
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
        self._sessions: dict[int, Session] = {}
        self._looked = self._resumed = time.monotonic()
        self._training: TrainingProgress | ScriptProgress | None = None
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
                rank, host, training = (message.pop(name) for name in ("rank", "host", "training"))
                phase = phases.BY_NAME[message.pop("phase")]
                current = CurrentPhase(phase, **message, training=_PROGRESS.validate_python(training))
                self._sessions[rank] = session
                self._record(rank, host, current)
                await session.send("received")
        finally:
            if self._sessions.get(rank) is session:  # the worker ended or failed: Spark reports which
                del self._sessions[rank], self._heartbeats[rank]

    def describe_hang(self, seconds: float) -> str | None:
        """Return which workers hang, None if the group makes progress; see the function of this name."""
        return describe_hang(dict(self._heartbeats), time.monotonic(), seconds)

    def find_silent(self, seconds: float) -> dict[int, str]:
        """Return the ranks of the workers without a heartbeat for `seconds`, and what each did last.

        If the driver itself was stopped meanwhile, it waits for them anew. If the workers of several hosts are silent,
        and no other one is not, its own network may have failed: it waits longer, and then they are lost.
        """
        at = time.monotonic()
        if at - self._looked >= PAUSED_SECONDS:
            self._resumed = at
        self._looked = at
        if at - self._resumed < seconds:
            return {}
        heartbeats = dict(self._heartbeats)
        importing_before = at - max(seconds, IMPORTING_SILENCE_SECONDS)
        silent = find_silent(heartbeats, at - seconds, importing_before)
        if len(silent) == len(heartbeats) and len({beat.host for beat in heartbeats.values()}) > 1:
            silent = find_silent(heartbeats, at - ALL_SILENT_FACTOR * seconds, importing_before)
        return {
            rank: f"rank {rank} on {heartbeats[rank].host}, in '{heartbeats[rank].current.phase}'" for rank in silent
        }

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

    def get_training(self) -> TrainingProgress | ScriptProgress | None:
        """Return the progress of the training, as rank 0 has sent it last; None if it has not."""
        return self._training

    def get_failures(self) -> list[Outcome]:
        """Return the failures that workers have reported, in the order of their arrival."""
        return list(self._failures)

    def _record(self, rank: int, host: str, current: CurrentPhase) -> None:
        last, at = self._heartbeats.get(rank), time.monotonic()
        since = last.since if last and last.current.entered == current.entered else at
        self._heartbeats[rank] = Heartbeat(host, current, since, at)
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
        self._request = threading.Lock()
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
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)
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
        message = {"failure": asdict(replace(outcome, error=error, traceback=traceback))}
        with suppress(OSError):
            try:
                self._send(message, CONNECT_SECONDS)
            except OSError:
                self._connect_again()
                self._send(message, CONNECT_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._send_heartbeat()
            except OSError:  # the driver does not answer
                if self._stopped.is_set():
                    return
                with suppress(OSError):
                    self._connect_again()
            self._stopped.wait(IMPORTING_INTERVAL_SECONDS if self._current.phase in IMPORTING else INTERVAL_SECONDS)
        with suppress(OSError):
            self._send_heartbeat()

    def _send_heartbeat(self) -> None:
        current = self._current
        training = current.training.model_dump() if current.training else None
        self._send({
            "rank": self._rank, "host": self._host, "phase": current.phase, "entered": current.entered,
            "epoch": current.epoch, "step": current.step, "training": training, "is_judged": current.is_judged,
        }, ANSWER_SECONDS)  # fmt: skip

    def _send(self, message: dict[str, Any], seconds: float) -> None:
        """Send a message, and wait for the answer. Raises OSError if there is none for so long."""
        assert self._channel
        with self._request:
            self._channel.send(message)
            self._channel.receive(seconds)

    def _connect_again(self) -> None:
        assert self._channel
        with self._request:
            self._channel.close()
            self._channel = Channel(self._address, SERVICE, ANSWER_SECONDS)
