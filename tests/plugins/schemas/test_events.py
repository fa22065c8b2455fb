"""Events, and how they come into their file."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from trainyard import storage
from trainyard.schemas import events
from trainyard.schemas.events import EventLog


def told(directory: Path) -> list[str]:
    return [event["name"] for event in events.read(str(directory)) if event["ph"] == "i"]


def test_who_lets_the_file_catch_up_does_not_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, write = threading.Event(), storage.replace

    def slow(uri: str, data: bytes) -> None:
        assert go_on.wait(60)
        write(uri, data)

    monkeypatch.setattr(storage, "replace", slow)
    log = EventLog(str(tmp_path), "train", "rank 0")
    for name in ("one", "two", "three"):
        log.instant(name)
        log.catch_up()
    assert not told(tmp_path)
    go_on.set()
    log.flush()
    assert told(tmp_path) == ["one", "two", "three"], "all of them, once, in order"


def test_what_could_not_be_written_is_written_by_the_next_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(uri: str, data: bytes) -> None:
        raise OSError("the storage is away")

    log = EventLog(str(tmp_path), "train", "rank 0")
    log.instant("one")
    with monkeypatch.context() as patched:
        patched.setattr(storage, "replace", absent)
        with pytest.raises(OSError, match="away"):
            log.flush()
    log.flush()
    assert told(tmp_path) == ["one"]
