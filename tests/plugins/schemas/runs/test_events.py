"""Events, and how they come into their file."""

from __future__ import annotations

import math
import shutil
import threading
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from trainyard.files import storage
from trainyard.files.storage import StoredFile
from trainyard.schemas.runs import events
from trainyard.schemas.runs.events import EventLog


def read_names(directory: Path) -> list[str]:
    return [event["name"] for event in events.read(str(directory)) if event["ph"] == "i"]


def pause_writes(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let the storage write files only after the event is set."""
    is_available, write = threading.Event(), storage.replace

    def wait(uri: str, data: bytes) -> None:
        assert is_available.wait(60)
        write(uri, data)

    monkeypatch.setattr(storage, "replace", wait)
    return is_available


def fail(uri: str, data: bytes) -> None:
    """Take the place of `storage.replace`."""
    raise OSError("the storage is away")


def test_flush_in_background_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_available = pause_writes(monkeypatch)
    log = EventLog(str(tmp_path), "train", "worker 0")
    for name in ("one", "two", "three"):
        log.instant(name)
        log.flush_in_background()
    assert not read_names(tmp_path)
    is_available.set()
    log.flush()
    assert read_names(tmp_path) == ["one", "two", "three"], "all of them, once, in order"


def test_events_that_could_not_be_written_are_written_by_the_next_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(str(tmp_path), "train", "worker 0")
    log.instant("one")
    with monkeypatch.context() as patched:
        patched.setattr(storage, "replace", fail)
        with pytest.raises(OSError, match="away"):
            log.flush()
    log.flush()
    assert read_names(tmp_path) == ["one"]


def test_the_end_of_a_process_does_not_wait_for_a_storage_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(events, "CLOSE_SECONDS", 0.05)
    is_available = pause_writes(monkeypatch)
    with EventLog(str(tmp_path), "train", "worker 0") as log:
        log.flush_in_background()
    is_available.set()
    assert capfd.readouterr().out == "cannot write the last events of worker 0: no answer within 0 s\n"


@pytest.mark.slow
def test_what_is_written_and_kept_does_not_grow_with_the_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every flush writes about a part at most, and earlier parts leave memory."""
    written: list[int] = []
    write = storage.replace

    def record(uri: str, data: bytes) -> None:
        written.append(len(data))
        write(uri, data)

    monkeypatch.setattr(storage, "replace", record)
    monkeypatch.setattr(events, "PART_BYTES", 64 << 10)
    tracemalloc.start()
    with EventLog(str(tmp_path), "train", "worker 0") as log:
        for epoch in range(250):
            log.counter("epoch", epoch=epoch, **{f"metric of some length {number}": 0.5 for number in range(1000)})
            log.flush()
        kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    total = sum(file.stat().st_size for file in tmp_path.rglob("*.jsonl"))
    assert total > 7 << 20
    assert max(written) < 100 << 10
    assert kept < 1 << 20
    assert len(list(tmp_path.rglob("*.jsonl"))) <= total // (64 << 10) + 1
    values = events.read_counters(str(tmp_path), "train", "worker 0", ["epoch"])
    assert [value["args"]["epoch"] for value in values] == list(range(250))


def test_a_value_that_is_not_finite_is_null_so_that_browsers_can_read_the_file(tmp_path: Path) -> None:
    with EventLog(str(tmp_path), "train", "worker 0") as log:
        log.counter("epoch", epoch=1, loss=math.nan, auroc=0.5, validation_loss=-math.inf)
        log.instant("resume", at=[1.0, math.nan])
    written = (tmp_path / "events/train/worker 0.jsonl").read_text()
    assert "NaN" not in written and "Infinity" not in written
    (value,) = events.read_counters(str(tmp_path), "train", "worker 0", ["epoch"])
    assert value["args"] == {"epoch": 1, "loss": None, "auroc": 0.5, "validation_loss": None}


def test_the_parts_of_a_process_have_one_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PART_BYTES", 1)
    for process in ("worker 0", "worker 0, start 2", "worker 1"):
        with EventLog(str(tmp_path), "train", process) as log:
            for number in range(12):
                log.instant(f"{process}: {number}")
                log.flush()
    moments = [event for event in events.read(str(tmp_path)) if event["ph"] == "i"]
    assert [event["tid"] for event in moments] == [0] * 12 + [1] * 12 + [2] * 12
    assert [event["name"] for event in moments[:12]] == [f"worker 0: {number}" for number in range(12)]
    driver = events.read_process(str(tmp_path), "train", "worker 0")
    assert [event["name"] for event in driver if event["ph"] == "i"] == [f"worker 0: {number}" for number in range(12)]


def test_a_second_attempt_replaces_all_parts_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PART_BYTES", 1)
    for names in (("one", "two", "three"), ("four",)):
        with EventLog(str(tmp_path), "export", "driver") as log:
            for name in names:
                log.instant(name)
                log.flush()
    assert read_names(tmp_path) == ["four"]


def test_after_close_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that wrote later would bring back the directory, or fail as it is gone."""
    is_available = pause_writes(monkeypatch)
    with EventLog(str(tmp_path / "run"), "train", "worker 0") as log:
        log.instant("one")
        log.flush_in_background()
        log.instant("two")
        is_available.set()
    assert read_names(tmp_path / "run") == ["one", "two"]
    assert [thread for thread in threading.enumerate() if thread.name == "events"] == []
    shutil.rmtree(tmp_path / "run")
    log.instant("three")
    log.flush_in_background()
    log.close()
    assert [thread for thread in threading.enumerate() if thread.name == "events"] == []
    assert not (tmp_path / "run").exists()


def test_a_failed_write_in_the_background_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with EventLog(str(tmp_path), "train", "worker 0") as log:
        log.instant("one")
        with monkeypatch.context() as patched:
            patched.setattr(storage, "replace", fail)
            log.flush_in_background()
            for thread in [thread for thread in threading.enumerate() if thread.name == "events"]:
                thread.join(60)
    captured = capfd.readouterr()
    assert captured.out.startswith("cannot write events: OSError: the storage is away.") and not captured.err
    assert read_names(tmp_path) == ["one"]


def test_the_error_of_the_body_is_not_hidden_by_an_error_of_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "replace", fail)
    with pytest.raises(ValueError, match="the cause"), EventLog(str(tmp_path), "train", "worker 0"):
        raise ValueError("the cause")


def test_a_process_does_not_fail_because_its_last_events_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(storage, "replace", fail)
    with EventLog(str(tmp_path), "train", "worker 0") as log:
        log.instant("one")
    assert capfd.readouterr().out == "cannot write events: OSError: the storage is away.\n"


def write_events(folder: Path, process: str = "driver") -> Path:
    with EventLog(str(folder), "train", process) as log:
        log.instant("one")
        log.instant("two")
    return folder / f"events/train/{process}.jsonl"


def test_a_line_that_a_killed_process_has_not_finished_is_left_out(tmp_path: Path) -> None:
    file = write_events(tmp_path)
    file.write_bytes(file.read_bytes() + b'{"ph":"X","na')
    unreadable: dict[str, str] = {}
    assert read_names(tmp_path) == ["one", "two"]
    assert len(events.read(str(tmp_path), unreadable)) == 4 and unreadable == {}
    file.write_bytes(b"")
    assert events.read(str(tmp_path)) == []


@pytest.mark.parametrize(
    "line", [b'{"ph":"X","na', b"[]", b'{"ph":"X","name":"copy","ts":1,"args":{}}', b"\xff", b"{}"]
)
def test_a_line_that_is_no_event_is_noted_and_the_others_are_read(tmp_path: Path, line: bytes) -> None:
    file = write_events(tmp_path)
    file.write_bytes(line + b"\n" + file.read_bytes())
    unreadable: dict[str, str] = {}
    names = [event["name"] for event in events.read(str(tmp_path), unreadable) if event["ph"] == "i"]
    assert names == ["one", "two"]
    text = line.decode(errors="replace")
    why = f"line 1 is not an event of this release: {text!r}"
    assert unreadable == {"train/driver.jsonl": f"ValueError: {why}"}
    with pytest.raises(ValueError, match="line 1 is not an event of this release"):
        events.read(str(tmp_path))


def test_the_events_of_a_process_without_a_name_are_noted(tmp_path: Path) -> None:
    """As of one whose first file is gone."""
    write_events(tmp_path)
    file = write_events(tmp_path, "worker 0")
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[2:]))
    unreadable: dict[str, str] = {}
    assert {event["tid"] for event in events.read(str(tmp_path), unreadable)} == {0}
    assert unreadable == {"train/worker 0": "ValueError: it has no names of its task and process"}


def test_values_may_have_any_name(tmp_path: Path) -> None:
    with EventLog(str(tmp_path), "task", "driver") as log:
        log.counter("seconds", name=1.0, self=2.0)
    assert [e["args"] for e in events.read(str(tmp_path)) if e["ph"] == "C"] == [{"name": 1.0, "self": 2.0}]


def test_of_a_run_with_very_many_events_those_of_drivers_and_first_workers_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in ("train@0", "train@1"):
        for process in ("driver", "worker 0", "worker 0, start 2", "worker 1"):
            with EventLog(str(tmp_path), task, process) as log:
                log.instant("moment", text="." * 1000)
    sizes = [file.stat().st_size for file in (tmp_path / "events").glob("*/*")]
    monkeypatch.setattr(events, "MAX_RUN_BYTES", sum(sizes[:6]) + max(sizes) // 2)
    unreadable: dict[str, str] = {}
    trace = events.read(str(tmp_path), unreadable)
    names = [event["args"]["name"] for event in trace if event["name"] == "thread_name"]
    assert Counter(names) == {"driver": 2, "worker 0": 2, "worker 0, start 2": 2}
    assert {event["pid"] for event in trace} == {1, 2}
    assert unreadable["events"].startswith("2 of 8 files are left out, because ")
    assert unreadable["events"].endswith(f" are in {tmp_path}/events")


def test_of_each_process_the_first_parts_are_read() -> None:
    files = [
        StoredFile(f"train/{name}.jsonl", 10, None) for name in ("worker 1", "worker 1.1", "worker 2", "worker 10")
    ]
    assert [file.path for file in events.select_files(files, 30)] == [
        "train/worker 1.jsonl", "train/worker 10.jsonl", "train/worker 2.jsonl",
    ]  # fmt: skip
