"""Heartbeats of workers, and the detection of a hang."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from trainyard.errors import TrainyardError
from trainyard.schemas.runs import phases
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.runs.worker_progress import TrainingProgress
from trainyard.trainer.connections.channel import Channel, DriverAddress, Session
from trainyard.trainer.group import heartbeats
from trainyard.trainer.group.group_server import GroupServer
from trainyard.trainer.group.heartbeats import (
    Heartbeat,
    HeartbeatMonitor,
    HeartbeatSender,
    describe_hang,
    find_silent,
    parse_silence_seconds,
)
from trainyard.trainer.group.outcome import Outcome
from trainyard.trainer.measuring.phases import CurrentPhase

HOUR = 3600 * 10**9

TRAINING = TrainingProgress(epoch=1, epochs=2, step=3, steps=4, loss=0.5, rows_per_second=100.0, seconds_left=60.0)


def beat(phase: str, epoch: int = 1, step: int = 40, since: float = 0.0, host: str = "node1") -> Heartbeat:
    return Heartbeat(host, CurrentPhase(phases.BY_NAME[phase], 1, epoch, step), since)


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.05)


def test_the_late_worker_is_named_with_its_phase() -> None:
    hang = describe_hang({0: beat("backward"), 1: beat("data wait", host="node2"), 2: beat("backward")}, 600.0, 600.0)
    assert hang == (
        "the worker group hangs in epoch 2, step 41: rank 1 on node2, in 'data wait' for 600 s; "
        "the others wait in 'backward'"
    )


@pytest.mark.parametrize(
    "heartbeats_by_rank",
    [
        {},
        {0: beat("backward"), 1: beat("data wait", since=1.0)},
        {0: beat("write model", since=599.0), 1: beat("checkpoint")},
        {0: beat("validate", since=0.0), 1: beat("optimizer", step=3, since=599.0)},
        {0: beat("script", step=3), 1: beat("script", step=40, since=599.0)},
    ],
)
def test_a_group_whose_slowest_worker_makes_progress_does_not_hang(heartbeats_by_rank: dict[int, Heartbeat]) -> None:
    assert describe_hang(heartbeats_by_rank, 600.0, 600.0) is None


def test_only_scripts_that_have_reported_progress_are_judged() -> None:
    """Those that have not may be ones that never do, or reports are the task of rank 0."""
    silent, reporting = beat("script"), beat("script", step=41)
    silent.current.is_judged = False
    assert describe_hang({0: silent, 1: silent}, 700.0, 600.0) is None
    hang = describe_hang({0: reporting, 1: silent}, 700.0, 600.0)
    assert hang and hang.endswith("; rank 0 on node1, in 'script' for 700 s")


def test_of_scripts_the_one_that_is_silent_for_longest_is_named_first() -> None:
    """A rank that reports no epochs is not behind those that do."""
    first, second = beat("script", epoch=0, step=0, since=50), beat("script", epoch=6, step=10, host="node2")
    assert describe_hang({0: first, 1: second}, 700.0, 600.0) == (
        "the worker group hangs: no script has called report_metrics or store_checkpoints for 650 s; "
        "rank 1 on node2, in 'script' for 700 s and rank 0 on node1, in 'script' for 650 s"
    )


def test_workers_that_are_all_in_one_phase_are_all_named() -> None:
    hang = describe_hang({0: beat("backward"), 1: beat("backward")}, 700.0, 600.0)
    assert hang and "rank 0 on node1" in hang and "rank 1 on node1" in hang and "others" not in hang


def hear(phase: str, received: float) -> Heartbeat:
    return replace(beat(phase), received=received)


def test_workers_without_a_heartbeat_for_too_long_are_silent_and_those_that_import_later() -> None:
    beats = {
        2: hear("backward", 99.9), 0: hear("forward", 100.1), 1: hear("rendezvous", 0), 3: hear("import", 50),
        4: hear("start", 49),
    }  # fmt: skip
    assert find_silent(beats, 100.0, 50.0) == [1, 2, 4]
    assert find_silent({}, 100.0, 50.0) == []


def test_after_a_pause_of_the_driver_no_worker_is_silent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monitor = HeartbeatMonitor()
    monitor._record(1, "node2", CurrentPhase(Phase.FORWARD))
    silent = []
    for pause in [1.0] * 23 + [60.0] + [1.0] * 23:
        clock[0] += pause
        silent.append(bool(monitor.find_silent(22.0)))
    assert silent == [False] * 22 + [True] + [False] * 22 + [True] * 2


@pytest.mark.parametrize(("hosts", "seconds"), [(("node1", "node1"), 22), (("node1", "node2"), 66)])
def test_all_workers_of_several_hosts_are_silent_later_for_the_driver_may_be_cut_off(
    monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, str], seconds: int
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monitor = HeartbeatMonitor()
    for rank, host in enumerate(hosts):
        monitor._record(rank, host, CurrentPhase(Phase.FORWARD))
    while not (silent := monitor.find_silent(22.0)):
        clock[0] += 1
    assert (sorted(silent), clock[0]) == ([0, 1], 1000 + seconds + 1)


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan"])
def test_a_silence_of_no_positive_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(TrainyardError, match=rf"spark\.trainyard\.silenceSeconds='{text}' is no number of seconds"):
        parse_silence_seconds(text)


def test_the_silence_that_counts_can_be_set() -> None:
    assert (parse_silence_seconds(None), parse_silence_seconds("60")) == (22.0, 60.0)


class Cable:
    """Forward connections to a server, until a cut: then what is sent on those that exist is lost, without an end."""

    def __init__(self, address: DriverAddress) -> None:
        self._listener, self._target = socket.create_server(("127.0.0.1", 0)), (address.host, address.port)
        self.address = replace(address, port=self._listener.getsockname()[1])
        self._cuts: list[threading.Event] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for each in self._cuts:
            each.set()

    def _accept(self) -> None:
        while True:
            worker, driver, cut = self._listener.accept()[0], socket.create_connection(self._target), threading.Event()
            self._cuts.append(cut)
            for ends in ((worker, driver), (driver, worker)):
                threading.Thread(target=self._forward, args=(*ends, cut), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, cut: threading.Event) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not cut.is_set():
                    target.sendall(data)
            if not cut.is_set():
                target.shutdown(socket.SHUT_WR)


@pytest.mark.slow
def test_a_worker_whose_connection_is_interrupted_connects_again_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "ANSWER_SECONDS", 0.2)
    current = CurrentPhase()
    with GroupServer("127.0.0.1") as server:
        cable = Cable(server.address)
        with HeartbeatSender(cable.address, 0, "node1", current) as sender:
            for step in (1, 2):
                current.step = step
                wait_for(lambda: [worker.step for worker in server.monitor.get_progress()] == [current.step])
                cable.cut()
            sender.report_failure(Outcome(0, "node1", 1.0, "failed", error="the model failed"))
            assert [failure.error for failure in server.monitor.get_failures()] == ["the model failed"]
        wait_for(lambda: server.monitor.get_progress() == ())


@pytest.mark.slow
def test_a_worker_is_monitored_from_its_first_heartbeat_until_it_ends() -> None:
    current = CurrentPhase()
    with GroupServer("127.0.0.1") as server:
        with HeartbeatSender(server.address, 3, "node9", current):
            wait_for(lambda: server.monitor.describe_hang(0.0))
            assert "rank 3 on node9, in 'start'" in str(server.monitor.describe_hang(0.0))
            current.enter(Phase.FORWARD)
            wait_for(lambda: "'forward'" in str(server.monitor.describe_hang(0.0)))
            current.epoch, current.step = 4, 17
            wait_for(lambda: [(worker.epoch, worker.step) for worker in server.monitor.get_progress()] == [(5, 17)])
            assert server.monitor.get_training() is None
            current.training = TRAINING
            wait_for(lambda: server.monitor.get_training() == TRAINING)
            assert [(worker.rank, worker.host, worker.phase) for worker in server.monitor.get_progress()] == [
                (3, "node9", "forward")
            ]
        wait_for(lambda: server.monitor.describe_hang(0.0) is None)


def test_the_driver_has_the_progress_of_a_worker_by_the_time_it_has_ended() -> None:
    current = CurrentPhase()
    with GroupServer("127.0.0.1") as server:
        with HeartbeatSender(server.address, 0, "h", current):
            wait_for(server.monitor.get_progress)
            current.training = TRAINING
        assert server.monitor.get_training() == TRAINING


def test_a_driver_that_does_not_answer_holds_no_worker_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send_time_only(_: HeartbeatMonitor, session: Session) -> None:
        while True:
            if "request_time" in await session.receive():
                await session.send(time.time_ns())

    monkeypatch.setattr(heartbeats, "LAST_HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(HeartbeatMonitor, "serve", send_time_only)
    with GroupServer("127.0.0.1") as server:
        with HeartbeatSender(server.address, 0, "h", CurrentPhase()):
            pass
        assert [thread for thread in threading.enumerate() if thread.name == "heartbeats"] == []


def test_the_threads_of_both_sides_end_with_them() -> None:
    for _ in range(20):
        with GroupServer("127.0.0.1") as server:
            with HeartbeatSender(server.address, 0, "h", CurrentPhase()):
                wait_for(server.monitor.get_progress)
            assert [thread for thread in threading.enumerate() if thread.name == "heartbeats"] == []
        assert [thread for thread in threading.enumerate() if thread.name == "monitor"] == []


def test_all_workers_of_a_large_group_can_connect_at_once() -> None:
    """They connect before the server has accepted any of them."""
    server = GroupServer("127.0.0.1")
    with ExitStack() as connections:
        for _ in range(100):
            connections.enter_context(socket.create_connection((server.address.host, server.address.port), 0.5))
    with server:
        pass


def test_a_worker_whose_connection_is_reset_is_not_monitored_anymore() -> None:
    with GroupServer("127.0.0.1") as server:
        channel = Channel(server.address, heartbeats.SERVICE)
        channel.send({
            "rank": 0, "host": "h", "phase": "forward", "entered": 1, "epoch": 0, "step": 0, "training": None,
        })  # fmt: skip
        wait_for(server.monitor.get_progress)
        channel._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        channel.close()
        wait_for(lambda: not server.monitor.get_progress())


def test_a_worker_measures_the_offset_from_the_drivers_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "now", lambda: time.time_ns() + HOUR)
    with GroupServer("127.0.0.1") as server, HeartbeatSender(server.address, 0, "h", CurrentPhase()) as sender:
        assert abs(sender.clock.behind_ns - HOUR) <= sender.clock.error_ns


def test_a_worker_without_the_secret_is_ignored() -> None:
    with GroupServer("127.0.0.1") as server:
        wrong_secret = DriverAddress(server.address.host, server.address.port, b"guessed")
        with HeartbeatSender(wrong_secret, 0, "h", CurrentPhase()) as ignored:
            assert ignored.clock.behind_ns == 0
        assert server.monitor.describe_hang(0.0) is None


def test_a_worker_trains_without_heartbeats_when_the_driver_is_not_reachable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with HeartbeatSender(
            DriverAddress("127.0.0.1", closed.getsockname()[1], b""), 0, "h", CurrentPhase()
        ) as sender:
            assert sender.clock.behind_ns == 0
    assert "cannot connect to the driver at 127.0.0.1" in capsys.readouterr().out
