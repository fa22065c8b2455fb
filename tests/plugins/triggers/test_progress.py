"""The progress of a training in the log of its deferred task."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from trainyard.schemas.runs.worker_progress import GroupProgress, TrainingProgress, progress_uri
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.triggers import progress
from trainyard.triggers.progress import ProgressReader


@pytest.fixture
def key(tmp_path: Path) -> TaskKey:
    return TaskKey(dag_id="d", run_id="r", task_id="train", directory=str(tmp_path))


def save(key: TaskKey, step: int, age: float = 0.0) -> None:
    training = TrainingProgress(epoch=1, epochs=2, step=step, steps=9, loss=0.5, rows_per_second=10.0, seconds_left=4.0)
    GroupProgress(task_key=key, at=time.time() - age, workers=(), training=training).save()


def read(reader: ProgressReader) -> str:
    return asyncio.run(reader.next_line())


def test_each_change_is_one_line(key: TaskKey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0)
    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0)
    reader = ProgressReader(progress_uri(key))
    assert read(reader) == "", "nothing is written yet"
    save(key, 3)
    assert read(reader) == "epoch 1/2 step 3/9: loss 0.5, 10 rows/s, 4 s left"
    assert read(reader) == ""
    save(key, 4)
    assert read(reader) == "epoch 1/2 step 4/9: loss 0.5, 10 rows/s, 4 s left"


def test_the_progress_of_an_earlier_attempt_is_not_that_of_this_one(
    key: TaskKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0)
    monkeypatch.setattr(progress, "INTERVAL_SECONDS", 0)
    save(key, 8, age=3600)
    reader = ProgressReader(progress_uri(key))
    assert read(reader) == ""
    save(key, 2, age=3000)  # by a clock that is behind
    assert read(reader).startswith("epoch 1/2 step 2/9")


def test_progress_that_arrives_late_is_a_line_of_a_later_poll(key: TaskKey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MAX_WAIT_SECONDS", 0.01)
    save(key, 3)
    reader, released = ProgressReader(progress_uri(key)), threading.Event()
    read_now = reader._read
    monkeypatch.setattr(reader, "_read", lambda: released.wait(60) and read_now())

    async def poll() -> list[str]:
        early = [await reader.next_line() for _ in range(3)]
        released.set()
        while not (line := await reader.next_line()):
            pass
        return [*early, line]

    assert asyncio.run(poll()) == ["", "", "", "epoch 1/2 step 3/9: loss 0.5, 10 rows/s, 4 s left"]


def test_the_storage_is_read_at_most_twice_a_minute(key: TaskKey) -> None:
    save(key, 3)
    reader = ProgressReader(progress_uri(key))
    assert read(reader)
    save(key, 4)
    assert [read(reader) for _ in range(100)] == [""] * 100


def test_a_storage_that_cannot_be_read_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(ProgressReader("nosuch://storage/progress/train.json")) == ""
