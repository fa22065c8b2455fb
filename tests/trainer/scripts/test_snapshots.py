"""Snapshots of a folder: what is copied, and what is refused."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from trainyard.trainer.scripts import snapshots
from trainyard.trainer.scripts.snapshots import SnapshotError, State


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (folder := tmp_path / "folder").mkdir()
    return folder


def write(path: Path, text: str, seconds_ago: float = 60) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    time = path.stat().st_mtime - seconds_ago
    os.utime(path, (time, time))


def take(folder: Path, known: dict[str, State], name: str = "snapshot") -> dict[str, str | None]:
    """Return the content of the copies in a snapshot, None for a file without one."""
    target = folder.parent / name
    snapshots.take(folder, known, target)
    known_after = {path: entry.state for path, entry in snapshots.read(target).items()}
    copies = {
        path: (target / entry.copy).read_text() if entry.copy else None
        for path, entry in snapshots.read(target).items()
    }
    known.clear()
    known.update(known_after)
    return copies


def test_files_that_have_not_changed_are_not_copied_again(folder: Path) -> None:
    write(folder / "a", "1")
    write(folder / "deep/b", "2")
    known: dict[str, State] = {}
    assert take(folder, known, "first") == {"a": "1", "deep/b": "2"}
    write(folder / "a", "3", seconds_ago=30)
    assert snapshots.has_changed(folder, known)
    assert take(folder, known, "second") == {"a": "3", "deep/b": None}
    assert not snapshots.has_changed(folder, known)
    (folder / "a").unlink()
    assert take(folder, known, "third") == {"deep/b": None}


def test_a_file_that_is_written_at_once_after_a_snapshot_is_copied_again(folder: Path) -> None:
    """In the time between two ticks of the clock of a file system, its times would not change."""
    known: dict[str, State] = {}
    for number in range(20):
        (folder / "a").write_text(f"{number:2}")
        assert take(folder, known, str(number)) == {"a": f"{number:2}"}


def test_a_copy_does_not_change_when_the_file_is_written_in_place(folder: Path) -> None:
    write(folder / "a", "old")
    snapshots.take(folder, {}, folder.parent / "snapshot")
    (folder / "a").write_text("new")  # the same inode
    (entry,) = snapshots.read(folder.parent / "snapshot").values()
    assert (folder.parent / "snapshot" / str(entry.copy)).read_text() == "old"


def test_a_snapshot_appears_as_a_whole_and_is_not_replaced(folder: Path) -> None:
    write(folder / "a", "1")
    take(folder, {})
    with pytest.raises(FileExistsError):
        snapshots.take(folder, {}, folder.parent / "snapshot")
    assert {path.name for path in folder.parent.iterdir()} == {"folder", "snapshot"}


def test_a_link_to_a_file_is_stored_as_the_file(folder: Path) -> None:
    write(folder / "epoch=3.ckpt", "state")
    (folder / "last.ckpt").symlink_to("epoch=3.ckpt")
    assert take(folder, {}) == {"epoch=3.ckpt": "state", "last.ckpt": "state"}


def test_what_cannot_be_stored_is_refused_by_name(folder: Path) -> None:
    write(folder / "12:30.pt", "1")
    with pytest.raises(SnapshotError, match=r"12:30\.pt cannot be stored: write a name without ':'"):
        take(folder, {})
    (folder / "12:30.pt").unlink()
    (folder / "latest").symlink_to(folder.parent)
    with pytest.raises(SnapshotError, match="latest is a link to a folder"):
        take(folder, {})


def test_a_file_that_is_being_written_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SETTLE_SECONDS", 0.2)
    stopped = threading.Event()

    def keep_writing() -> None:
        with (folder / "a").open("w") as file:
            while not stopped.is_set():
                file.write("x" * 100_000)
                file.flush()
                file.seek(0)

    (folder / "a").touch()
    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        with pytest.raises(SnapshotError, match=r"a is written or removed while it is stored; call store_checkpoints"):
            take(folder, {})
    finally:
        stopped.set()
        writer.join()
