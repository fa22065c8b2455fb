"""Snapshots of a folder: what is copied, and what is refused."""

from __future__ import annotations

import os
import re
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


@pytest.mark.parametrize("name", ["12:30.pt", "a\\b", "a\nb", os.fsdecode(b"\xff")])
def test_names_that_no_document_has_are_refused(folder: Path, name: str) -> None:
    write(folder / name, "1")
    error = f"{str(folder / name)!r} cannot be stored: write a name without ':', '\\' and control characters, in UTF-8"
    with pytest.raises(SnapshotError, match=re.escape(error)):
        take(folder, {})


def test_any_other_name_is_stored(folder: Path) -> None:
    names = ["Größe", "a b", "non\u00a0breaking", "epoch=1-step=2.ckpt", ".hidden"]
    for name in names:
        write(folder / name, "1")
    assert take(folder, {}) == dict.fromkeys(names, "1")


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("folder", "is a link to a folder, which is not stored; write files there instead"),
        ("nothing", "is a link to a file that does not exist; remove it"),
        ("itself", "is a link to a file that does not exist; remove it"),
        ("pipe", "is neither a file nor a folder; write it elsewhere"),
    ],
)
def test_what_is_no_file_is_refused_by_name_or_left_out_with_a_warning(folder: Path, kind: str, error: str) -> None:
    write(folder / "model", "1")
    special = folder / "latest"
    if kind == "pipe":
        os.mkfifo(special)
    else:
        special.symlink_to({"folder": folder.parent, "nothing": folder / "gone", "itself": special}[kind])
    with pytest.raises(SnapshotError, match=f"latest' {error}"):
        take(folder, {})
    warnings: list[str] = []
    snapshots.take(folder, {}, folder.parent / "last", warn=warnings.append)
    assert list(snapshots.read(folder.parent / "last")) == ["model"]
    assert len(warnings) == 1 and f"latest' {error}" in warnings[0]


def test_temporary_files_that_vanish_are_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they were renamed to is stored, also if it is new."""
    for name in ("a", "b", "model.tmp"):
        write(folder / name, name)
    read_state = snapshots.read_state

    def rename_before(path: Path) -> State:
        if path.name == "model.tmp" and path.exists():
            path.rename(folder / "Model")
        return read_state(path)

    monkeypatch.setattr(snapshots, "read_state", rename_before)
    assert take(folder, {}) == {"Model": "model.tmp", "a": "a", "b": "b"}


def test_a_folder_that_always_has_temporary_files_is_stored(folder: Path) -> None:
    for number in range(100):
        write(folder / f"{number}", "x")
    stopped = threading.Event()

    def write_temporary_files() -> None:
        while not stopped.is_set():
            for name in ("0.tmp", "50.tmp", "deep/99.tmp"):
                (folder / "deep").mkdir(exist_ok=True)
                (folder / name).write_text("x")
                (folder / name).unlink()
            (folder / "deep").rmdir()

    writer = threading.Thread(target=write_temporary_files)
    writer.start()
    try:
        for number in range(3):
            assert set(take(folder, {}, f"snapshot {number}")) >= set(map(str, range(100)))
            snapshots.has_changed(folder, {})
    finally:
        stopped.set()
        writer.join()


def test_a_file_that_is_being_written_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "SETTLE_SECONDS", 0.2)
    monkeypatch.setattr(snapshots, "TICK_SECONDS", 1)  # a busy machine may not let the writer run for a while
    stopped, writing = threading.Event(), threading.Event()

    def keep_writing() -> None:
        with (folder / "a").open("w") as file:
            while not stopped.is_set():
                file.write("x" * 100_000)
                file.flush()
                file.seek(0)
                writing.set()

    (folder / "a").touch()
    writer = threading.Thread(target=keep_writing)
    writer.start()
    assert writing.wait(30)
    try:
        with pytest.raises(SnapshotError, match=r"a is written while it is stored; call store_checkpoints"):
            take(folder, {})
    finally:
        stopped.set()
        writer.join()
