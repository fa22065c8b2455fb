"""Trackers of a script: what they get, and that nothing waits for one."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.group import script
from trainyard.trainer.measuring.phases import CurrentPhase
from trainyard.trainer.measuring.tracking import Point, Tracker
from trainyard.trainer.scripts import tracking
from trainyard.trainer.scripts.metrics import MetricRecorder
from trainyard.trainer.scripts.reports import Report
from trainyard.trainer.scripts.tracking import BackgroundTracking


class Recording(Tracker):
    """Keeps what it gets; while `answers` is not set, it does not return."""

    def __init__(self) -> None:
        self.answers, self.asked = threading.Event(), threading.Event()
        self.calls: list[list[Point]] = []
        self.ends: list[bool] = []

    def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        raise AssertionError("points are sent together")

    def epochs(self, points: Sequence[Point]) -> None:
        self.asked.set()
        assert self.answers.wait(10)
        self.calls.append(list(points))

    def end(self, succeeded: bool) -> None:
        self.ends.append(succeeded)


class Broken(Recording):
    """Fails at every call."""

    def epochs(self, points: Sequence[Point]) -> None:
        super().epochs(points)
        raise ConnectionError("not reachable")


def test_points_that_arrive_while_a_tracker_is_busy_are_sent_together() -> None:
    tracker = Recording()
    background = BackgroundTracking([tracker])
    background.add(1, {"loss": 3.0})
    assert tracker.asked.wait(10)
    for number in (2, 3):
        background.add(number, {"loss": 1.0})
    tracker.answers.set()
    background.finish(succeeded=True)
    assert tracker.calls == [[(1, {"loss": 3.0})], [(2, {"loss": 1.0}), (3, {"loss": 1.0})]]
    assert tracker.ends == [True]


def test_points_of_some_seconds_are_sent_together_and_the_last_ones_at_once() -> None:
    tracker = Recording()
    tracker.answers.set()
    background = BackgroundTracking([tracker], seconds=0.2)
    started = time.monotonic()
    for number in range(50):
        background.add(number, {"loss": 3.0})
        time.sleep(0.01)
    ended = time.monotonic()
    background.finish(succeeded=True)
    assert len(tracker.calls) <= 2 + (ended - started) / 0.2
    assert [number for points in tracker.calls for number, _ in points] == list(range(50))
    assert time.monotonic() - ended < 0.15


def test_a_tracker_whose_points_cost_more_gets_them_less_often() -> None:
    tracker = Recording()
    tracker.answers.set()
    tracker.pause = 60
    background = BackgroundTracking([tracker], seconds=0)
    background.add(1, {"loss": 3.0})
    assert tracker.asked.wait(10)
    for number in (2, 3):
        time.sleep(0.05)
        background.add(number, {"loss": 3.0})
    background.finish(succeeded=True)
    assert [len(points) for points in tracker.calls] == [1, 2]


def test_a_tracker_that_fails_gets_no_more_and_others_do(capsys: pytest.CaptureFixture[str]) -> None:
    broken, intact = Broken(), Recording()
    for tracker in (broken, intact):
        tracker.answers.set()
    background = BackgroundTracking([broken, intact])
    background.add(1, {"loss": 3.0})
    assert intact.asked.wait(10)
    background.add(2, {"loss": 2.0})
    background.finish(succeeded=False)
    assert (len(broken.calls), broken.ends, intact.ends) == (1, [], [False])
    assert [number for points in intact.calls for number, _ in points] == [1, 2]
    assert "Broken failed, and gets no more metrics of this run: not reachable" in capsys.readouterr().out


def test_the_end_does_not_wait_for_a_tracker_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tracking, "END_SECONDS", 0.1)
    tracker = Recording()
    background = BackgroundTracking([tracker])
    background.add(1, {"loss": 3.0})
    background.finish(succeeded=True)
    assert "trackers did not take the last metrics within 0 s" in capsys.readouterr().out
    tracker.answers.set()


def test_a_tracker_that_answers_after_the_end_gets_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next start of the group has resumed its run by then."""
    monkeypatch.setattr(tracking, "END_SECONDS", 0.1)
    tracker = Recording()
    background = BackgroundTracking([tracker])
    background.add(1, {"loss": 3.0})
    assert tracker.asked.wait(10)
    background.add(2, {"loss": 2.0})
    background.finish(succeeded=False)
    tracker.answers.set()
    background._thread.join(10)
    assert (len(tracker.calls), tracker.ends) == (1, [])


@pytest.mark.slow
def test_a_run_ends_as_failed_if_its_worker_fails_before_the_script_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> list[str]:
        raise ConnectionError("rank 1 has failed")

    rank_0 = SimpleNamespace(
        partitionId=lambda: 0, resources=dict, getTaskInfos=lambda: [SimpleNamespace(address="127.0.0.1:1")],
        allGather=fail,
    )  # fmt: skip
    tracker = Recording()
    monkeypatch.setattr(script, "open_trackers", lambda *_: [tracker])
    spec = ScriptSpec(
        task_key=TaskKey(dag_id="d", run_id="r", task_id="t", directory=str(tmp_path)), script="a.b", workers=1,
        trackers=("tensorboard",),
    )  # fmt: skip
    with pytest.raises(ConnectionError, match="rank 1 has failed"):
        script._run_worker(rank_0, spec, 0, DriverAddress("127.0.0.1", 1, b"secret"), 1, 22)
    assert tracker.ends == [False]


def test_trackers_get_the_points_of_the_curves(tmp_path: Path) -> None:
    tracker = Recording()
    tracker.answers.set()
    background = BackgroundTracking([tracker])
    with EventLog(str(tmp_path), "train", "worker 0") as events:
        recorder = MetricRecorder(events, CurrentPhase(), is_main=True, tracking=background)
        for report in (Report(1, 5, {"loss": 3.0}), Report(1, 9, {"loss": 2.0}), Report(None, 10, {"rate": 0.1})):
            recorder.record(report)
        recorder.end()
    background.finish(succeeded=True)
    assert [point for points in tracker.calls for point in points] == [(1, {"loss": 2.0}), (10, {"rate": 0.1})]
