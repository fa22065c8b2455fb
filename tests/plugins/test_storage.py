"""Storage: exclusive creation, atomic replacement, and versions that no writer tears."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from trainyard import storage


def test_names_are_resolved_below_the_root_unless_absolute() -> None:
    assert storage.resolve("file:///store", "a/b") == "file:///store/a/b"
    assert storage.resolve("file:///store", "/a/b") == "/a/b"
    assert storage.resolve("file:///store", "hdfs://n/a") == "hdfs://n/a"


def test_of_many_creators_exactly_one_succeeds(tmp_path: Path) -> None:
    uri, won, lost = f"file://{tmp_path}/d/file", [], []
    barrier = threading.Barrier(8)

    def create(number: int) -> None:
        barrier.wait()
        try:
            storage.create(uri, str(number).encode())
            won.append(number)
        except FileExistsError:
            lost.append(number)

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and len(lost) == 7
    assert storage.read(uri) == str(won[0]).encode()
    assert storage.list_names(f"file://{tmp_path}/d") == ["file"], "no staged file is left"


def test_a_replaced_file_is_never_visible_in_part(tmp_path: Path) -> None:
    uri = str(tmp_path / "file")
    versions = [bytes([n]) * 200_000 for n in range(20)]
    storage.replace(uri, versions[0])
    stop, seen = threading.Event(), set()

    def watch() -> None:
        while not stop.is_set():
            seen.add(storage.read(uri))

    reader = threading.Thread(target=watch)
    reader.start()
    for version in versions:
        storage.replace(uri, version)
    stop.set()
    reader.join()
    assert seen <= set(versions)


def test_a_directory_is_never_moved_over_another(tmp_path: Path) -> None:
    for name in ("a", "b"):
        storage.replace(str(tmp_path / name / "file"), name.encode())
    with pytest.raises(FileExistsError):
        storage.move(str(tmp_path / "a"), str(tmp_path / "b"))
    assert storage.read(str(tmp_path / "b/file")) == b"b"


def test_removing_a_missing_file_is_not_an_error(tmp_path: Path) -> None:
    storage.remove(str(tmp_path / "nothing"))
    assert storage.list_names(str(tmp_path / "nothing")) == []
