"""What the driver knows of ranks while they run, and which it calls late."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from trainyard.trainer.group import heartbeats
from trainyard.trainer.group.heartbeats import Heartbeat, HeartbeatMonitor, HeartbeatSender, MonitorAddress, stalled
from trainyard.trainer.loop.phases import CurrentPhase

HOUR = 3600 * 10**9


def seen(phase: str, epoch: int = 1, step: int = 40, since: float = 0.0, host: str = "node1") -> Heartbeat:
    return Heartbeat(host, CurrentPhase(phase, 1, epoch, step), since)


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


def test_the_rank_that_did_not_arrive_is_named_with_its_phase() -> None:
    found = stalled({0: seen("backward"), 1: seen("data wait", host="node2"), 2: seen("backward")}, 600.0, 600.0)
    assert found == (
        "the gang hangs in epoch 2, step 41: rank 1 on node2, in 'data wait' for 600 s; the others wait in 'backward'"
    )


@pytest.mark.parametrize(
    "sightings",
    [
        {},
        {0: seen("backward"), 1: seen("data wait", since=1.0)},
        {0: seen("validate", since=0.0), 1: seen("optimizer", step=3, since=599.0)},
    ],
)
def test_a_gang_whose_last_rank_still_moves_does_not_hang(sightings: dict[int, Heartbeat]) -> None:
    assert stalled(sightings, 600.0, 600.0) is None


def test_ranks_that_are_all_in_one_phase_are_all_named() -> None:
    found = stalled({0: seen("backward"), 1: seen("backward")}, 700.0, 600.0)
    assert found and "rank 0 on node1" in found and "rank 1 on node1" in found and "baselines" not in found


def test_a_rank_that_tells_of_itself_is_seen_and_forgotten_when_it_ends() -> None:
    here = CurrentPhase()
    with HeartbeatMonitor("127.0.0.1") as there:
        with HeartbeatSender(there.address, 3, "node9", here):
            wait_for(lambda: there.stalled(0.0))
            assert "rank 3 on node9, in 'start'" in str(there.stalled(0.0))
            here.enter("forward")
            wait_for(lambda: "'forward'" in str(there.stalled(0.0)))
            here.epoch, here.step = 4, 17
            wait_for(lambda: [(one.epoch, one.step) for one in there.progress()] == [(5, 17)])
            assert [(one.rank, one.host, one.phase) for one in there.progress()] == [(3, "node9", "forward")]
        wait_for(lambda: there.stalled(0.0) is None)


def test_the_drivers_clock_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "now", lambda: time.time_ns() + HOUR)
    with HeartbeatMonitor("127.0.0.1") as there, HeartbeatSender(there.address, 0, "h", CurrentPhase()) as one:
        assert abs(one.clock.behind_ns - HOUR) <= one.clock.error_ns


def test_who_does_not_know_the_secret_is_not_heard() -> None:
    with HeartbeatMonitor("127.0.0.1") as there:
        stranger = MonitorAddress(there.address.host, there.address.port, b"guessed")
        with HeartbeatSender(stranger, 0, "h", CurrentPhase()) as unheard:
            assert unheard.clock.behind_ns == 0
        assert there.stalled(0.0) is None


def test_a_rank_trains_on_when_the_driver_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with HeartbeatSender(MonitorAddress("127.0.0.1", taken.getsockname()[1], b""), 0, "h", CurrentPhase()) as alone:
            assert alone.clock.behind_ns == 0
    assert "the driver cannot be reached at 127.0.0.1" in capsys.readouterr().out
