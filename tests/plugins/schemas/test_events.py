"""Events, and how they come into their file."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from trainyard import storage
from trainyard.schemas import events
from trainyard.schemas.events import EventLog


def read_names(directory: Path) -> list[str]:
    return [event["name"] for event in events.read(str(directory)) if event["ph"] == "i"]


def test_flush_in_background_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, write = threading.Event(), storage.replace

    def slow(uri: str, data: bytes) -> None:
        assert go_on.wait(60)
        write(uri, data)

    monkeypatch.setattr(storage, "replace", slow)
    log = EventLog(str(tmp_path), "train", "worker 0")
    for name in ("one", "two", "three"):
        log.instant(name)
        log.flush_in_background()
    assert not read_names(tmp_path)
    go_on.set()
    log.flush()
    assert read_names(tmp_path) == ["one", "two", "three"], "all of them, once, in order"


def test_events_that_could_not_be_written_are_written_by_the_next_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(uri: str, data: bytes) -> None:
        raise OSError("the storage is away")

    log = EventLog(str(tmp_path), "train", "worker 0")
    log.instant("one")
    with monkeypatch.context() as patched:
        patched.setattr(storage, "replace", absent)
        with pytest.raises(OSError, match="away"):
            log.flush()
    log.flush()
    assert read_names(tmp_path) == ["one"]
