"""Storage: exclusive creation, atomic replacement, and versions that no writer tears."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from tests.plugins.readers import read_while_replaced
from trainyard.errors import TrainyardError, UnavailableError
from trainyard.files import filesystems, storage, trial, uris


def test_names_are_resolved_below_the_root_unless_absolute() -> None:
    assert uris.resolve("file:///store", "a/b") == "file:///store/a/b"
    assert uris.resolve("file:///store", "/a/b") == "/a/b"
    assert uris.resolve("file:///store", "hdfs://n/a") == "hdfs://n/a"


@pytest.mark.parametrize("name", ["", "../a", "a/./b", "hdfs:/n/a", "a:b", "a\nb", "tab\tb"])
def test_a_name_that_is_none_on_some_storage_is_refused(name: str) -> None:
    with pytest.raises(TrainyardError, match=r"is not a name below the storage root file:///store; write a name"):
        uris.resolve("file:///store", name)


class Cutting(MemoryFileSystem):
    """A file system that takes `#` for the end of a path, as URIs do."""

    protocol = "cutting"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.partition("#")[0])


def test_a_path_that_the_client_would_cut_is_refused() -> None:
    fsspec.register_implementation("cutting", Cutting, clobber=True)
    with pytest.raises(TrainyardError) as refused:
        storage.remove("cutting://store/sales#new")
    assert str(refused.value) == (
        "'cutting://store/sales#new': the client of cutting:// takes '#' for the end of a name, and would use another "
        "path; write a name without it."
    )


class Silent(MemoryFileSystem):  # type: ignore[misc]
    """A storage that does not answer."""

    asked = 0
    answered = threading.Event()

    def exists(self, path: str, **_: Any) -> bool:
        """Wait for the end of the test."""
        Silent.asked += 1
        return self.answered.wait(60)


def test_a_storage_that_does_not_answer_a_person_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "_REGISTERED", {"hdfs://far": Silent()})
    monkeypatch.setattr(filesystems, "ANSWER_SECONDS", 1.0)
    try:
        with filesystems.while_person_waits():
            for read in (storage.read, storage.list_names, partial(copy_context().run, storage.exists)):
                with pytest.raises(UnavailableError, match="hdfs://far does not answer within 1 s; check the host"):
                    read("hdfs://far/data")
            assert not storage.exists("memory://near/data"), "another storage is read"
        assert Silent.asked == 1
        filesystems.locate("hdfs://far/data")  # no person waits
    finally:
        Silent.answered.set()


def create_at_once(uri: str, writer: str, barrier: Any) -> bool:
    """Return whether this caller created the file, when all callers have reached the barrier."""
    barrier.wait(60)
    try:
        storage.create(uri, writer.encode() * 1000)
    except FileExistsError:
        return False
    return True


def race(root: str, creators: int, rounds: int) -> list[list[bool]]:
    """Return who created each of `rounds` files, of several threads that start at the same time."""
    barrier = threading.Barrier(creators)

    def create(number: int) -> list[bool]:
        return [create_at_once(f"{root}/d/{i}", str(number), barrier) for i in range(rounds)]

    with ThreadPoolExecutor(creators) as pool:
        return list(pool.map(create, range(creators)))


@pytest.mark.parametrize("protocol", ["file", "memory"])
def test_of_many_threads_that_create_a_file_exactly_one_succeeds(tmp_path: Path, protocol: str) -> None:
    root = f"{protocol}://{tmp_path}"
    won = race(root, creators=16, rounds=40)
    for number, winners in enumerate(zip(*won, strict=True)):
        assert sum(winners) == 1
        assert storage.read(f"{root}/d/{number}") == str(winners.index(True)).encode() * 1000
    assert len(storage.list_names(f"{root}/d")) == 40, "no staged file is left"


@pytest.mark.slow
def test_of_many_processes_that_create_a_file_exactly_one_succeeds(tmp_path: Path) -> None:
    uris = [f"file://{tmp_path}/d/{number}" for number in range(20)]
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(4, context) as pool:
        barrier = manager.Barrier(4)
        rounds = [[pool.submit(create_at_once, uri, str(n), barrier) for n in range(4)] for uri in uris]
        for uri, futures in zip(uris, rounds, strict=True):
            winners = [future.result(60) for future in futures]
            assert sum(winners) == 1
            assert storage.read(uri) == str(winners.index(True)).encode() * 1000


@pytest.mark.parametrize(
    "write",
    [
        lambda uri, file: storage.create(uri, b"1"),
        lambda uri, file: storage.replace(uri, b"1"),
        lambda uri, file: storage.upload(uri, file),
        lambda uri, file: storage.copy(str(file), uri),
        lambda uri, file: storage.move(uri, f"{uri}-moved"),
    ],
)
def test_a_storage_that_cannot_write_in_one_step_is_refused(tmp_path: Path, write: Callable[[str, Path], None]) -> None:
    (tmp_path / "file").write_bytes(b"1")
    with pytest.raises(TrainyardError, match=r"'dir::file://.*' is on a storage \(dir://\).*file://, hdfs://"):
        write(f"dir::file://{tmp_path}/made", tmp_path / "file")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_directory_is_not_renamed_where_its_files_would_be_copied() -> None:
    storage.create("memory://renamed/a", b"1")
    with pytest.raises(TrainyardError, match=r"'memory://elsewhere' .* copies a directory file by file"):
        storage.move("memory://renamed", "memory://elsewhere")
    assert storage.read("memory://renamed/a") == b"1"
    assert [storage.renames_directories(uri) for uri in ("memory://renamed", "/renamed")] == [False, True]


def test_an_upload_to_memory_does_not_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"new")
    storage.create("memory://uploads/old", b"old")
    for name in ("old", "new"):
        storage.upload(f"memory://uploads/{name}", tmp_path / "file")
    assert [storage.read(f"memory://uploads/{name}") for name in ("old", "new")] == [b"old", b"new"]


def write_output(uri: str, data: bytes) -> None:
    with storage.open_output(uri) as file:
        file.write(data)


def test_local_files_and_their_names_are_on_the_disk_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What survives a loss of power: the file before its name, and the name before the call returns."""
    synchronized: list[Path] = []
    sync = os.fsync

    def record(descriptor: int) -> None:
        synchronized.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    (tmp_path / "file").write_bytes(b"1")
    writes: dict[str, Callable[[str], None]] = {
        "open_output": lambda uri: write_output(uri, b"1"),
        "create": lambda uri: storage.create(uri, b"1"),
        "replace": lambda uri: storage.replace(uri, b"1"),
        "upload": lambda uri: storage.upload(uri, tmp_path / "file"),
        "copy": lambda uri: storage.copy(str(tmp_path / "file"), uri),
    }
    for name, write in writes.items():
        synchronized.clear()
        write(str(tmp_path / name / "below" / "it"))
        folder = tmp_path / name
        assert synchronized[:2] == [tmp_path, folder], "the new directories"
        assert synchronized[2].parent == folder / "below", "the file, under its first name"
        assert synchronized[-1] == folder / "below", "its name"
    synchronized.clear()
    storage.move(str(tmp_path / "copy"), str(tmp_path / "moved" / "here"))
    assert set(synchronized) == {tmp_path, tmp_path / "moved"}


def test_a_file_is_never_missing_or_visible_in_part_while_it_is_replaced(tmp_path: Path) -> None:
    versions = [bytes([n]) * 200_000 for n in range(20)]
    seen = read_while_replaced(str(tmp_path / "file"), versions)
    assert seen[0] == versions[0] and set(seen) <= set(versions)


def test_a_directory_is_never_moved_over_another(tmp_path: Path) -> None:
    for name in ("a", "b"):
        storage.replace(str(tmp_path / name / "file"), name.encode())
    with pytest.raises(FileExistsError):
        storage.move(str(tmp_path / "a"), str(tmp_path / "b"))
    assert storage.read(str(tmp_path / "b/file")) == b"b"


@pytest.mark.parametrize("protocol", ["file", "memory"])
def test_only_an_empty_directory_is_removed_as_such(tmp_path: Path, protocol: str) -> None:
    root = f"{protocol}://{tmp_path}/parent"
    storage.replace(f"{root}/full/file", b"data")
    storage.replace(f"{root}/empty/file", b"data")
    storage.remove(f"{root}/empty/file")
    for name in ("empty", "absent"):
        storage.remove_empty(f"{root}/{name}")
    with pytest.raises(FileExistsError, match="full is not empty"):
        storage.remove_empty(f"{root}/full")
    assert storage.list_names(root) == ["full"] and storage.read(f"{root}/full/file") == b"data"


def test_removing_a_missing_file_is_not_an_error(tmp_path: Path) -> None:
    storage.remove(str(tmp_path / "nothing"))
    assert storage.list_names(str(tmp_path / "nothing")) == []


def test_a_write_that_fails_leaves_no_staged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr("os.fsync", fail)
    for write in (storage.create, storage.replace):
        with pytest.raises(OSError, match="no space left"):
            write(str(tmp_path / "document"), b"data")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("write", [storage.create, storage.replace])
def test_a_write_has_succeeded_although_its_staged_file_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[str, bytes], None]
) -> None:
    """As during a failover of the NameNode, right after the rename."""

    def fail(fs: Any, path: str) -> bool:
        raise OSError("standby")

    monkeypatch.setattr(LocalFileSystem, "exists", fail)
    write(str(tmp_path / "document"), b"data")
    assert (tmp_path / "document").read_bytes() == b"data"


class Forgetful(MemoryFileSystem):  # type: ignore[misc]
    """A NameNode that does a rename, and whose reply is lost: the client repeats it, and gets an error."""

    protocol = "hdfs"

    def mv(self, path1: str, path2: str, overwrite: bool = False, **_: Any) -> None:
        """Rename twice."""
        for _ in range(2):
            if self.exists(path2) and not overwrite:
                raise FileExistsError(path2)
            super().mv(path1, path2)


@pytest.mark.parametrize("write", [storage.create, storage.replace])
def test_a_file_is_written_although_the_reply_to_its_rename_is_lost(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[str, bytes], None]
) -> None:
    folder = f"hdfs://failover/{write.__name__}"
    monkeypatch.setattr(filesystems, "_REGISTERED", {"hdfs://failover": Forgetful()})
    write(f"{folder}/document", b"data")
    assert storage.list_names(folder) == ["document"] and storage.read(f"{folder}/document") == b"data"
    with pytest.raises(FileExistsError):
        storage.create(f"{folder}/document", b"of another")
    assert storage.list_names(folder) == ["document"] and storage.read(f"{folder}/document") == b"data"


@pytest.mark.parametrize("protocol", ["file", "memory"])
def test_files_are_found_at_any_depth_with_their_size_and_age(tmp_path: Path, protocol: str) -> None:
    root = f"{protocol}://{tmp_path}/found"
    before = time.time() - 1
    for name in ("b", "a/c/d"):
        storage.replace(f"{root}/{name}", b"four")
    found = storage.find_files(f"{root}/")
    assert [(file.path, file.bytes) for file in found] == [("a/c/d", 4), ("b", 4)]
    assert all(file.modified and before <= file.modified <= time.time() + 1 for file in found)
    assert storage.modified(f"{root}/b") == found[1].modified and storage.modified(f"{root}/c") is None
    assert storage.list_directories(root) == ["a"]
    assert storage.find_files(f"{root}/nothing") == storage.list_directories(f"{root}/nothing") == []


def test_links_to_directories_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [file.path for file in storage.find_files(str(tmp_path))] == ["loop"]
    assert storage.list_directories(str(tmp_path)) == []


def test_a_full_storage_that_takes_empty_files_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = MemoryFileSystem.pipe_file

    def fill(fs: MemoryFileSystem, path: str, value: bytes, mode: str) -> None:
        write(fs, path, b"", mode)
        if value:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", fill)
    assert trial.write_error("memory://full") == "OSError: [Errno 28] No space left on device"


def test_a_server_that_ignores_the_condition_of_a_write_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    write = MemoryFileSystem.pipe_file
    assert trial.write_error("memory://exclusive") == ""
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lambda fs, path, value, mode: write(fs, path, value))
    assert "the server ignores If-None-Match" in trial.write_error("memory://exclusive")
    assert storage.list_names("memory://exclusive") == []


@pytest.mark.parametrize("uri", ["{0}/a/b", "file://{0}/a/b", "file://{0}/a/b/", "memory://{0}/a/b"])
def test_a_check_of_a_directory_that_does_not_exist_does_not_create_it(tmp_path: Path, uri: str) -> None:
    """An empty directory would count as what a job wrote."""
    assert trial.write_error(uri.format(tmp_path)) == ""
    assert storage.list_names(uri.format(tmp_path).partition("/a")[0]) == []


def test_a_directory_below_a_file_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert trial.write_error(f"{tmp_path.as_uri()}/file/a").startswith("FileExistsError: ")


def test_a_storage_whose_client_is_not_installed_is_refused_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(TrainyardError, match=r"'gs://bucket/x' needs a client .*\[s3\], \[gcs\] or \[azure\]"):
        storage.read("gs://bucket/x")


class UnansweredFileSystem(LocalFileSystem):
    """A file system whose server does not answer: hdfs-native raises a plain OSError, which `isdir` hides."""

    def info(self, path: str, **kwargs: Any) -> Any:
        raise OSError("Connection refused")

    def ls(self, path: str, detail: bool = False, **kwargs: Any) -> Any:
        raise OSError("Connection refused")


def test_a_storage_that_does_not_answer_is_no_empty_directory() -> None:
    filesystems.register("hdfs://unanswered", UnansweredFileSystem())
    with pytest.raises(OSError, match="Connection refused"):
        storage.list_names("hdfs://unanswered/runs")


@pytest.mark.parametrize("protocol", ["file", "memory"])
def test_a_file_and_an_absent_directory_have_no_names(tmp_path: Path, protocol: str) -> None:
    root = f"{protocol}://{tmp_path}"
    storage.create(f"{root}/directory/file", b"")
    assert storage.list_names(f"{root}/directory") == storage.list_names(f"{root}/directory/") == ["file"]
    assert storage.list_names(f"{root}/directory/file") == storage.list_names(f"{root}/absent") == []


@pytest.mark.parametrize("name", ["/in", "hdfs://nn/in", "s3a://bucket", "simplecache::s3://bucket/x"])
def test_a_uri_or_an_absolute_path_is_not_below_the_root(name: str) -> None:
    assert uris.resolve("file:///s", name) == name


@pytest.mark.parametrize("name", ["toy/dataset", "{'uri': 'hdfs://nn/in'}", "a b://c"])
def test_text_that_only_contains_a_uri_is_none(name: str) -> None:
    assert not uris.is_absolute(name)


def test_a_scheme_without_a_client_is_an_error_for_the_user() -> None:
    with pytest.raises(TrainyardError, match=r"^'nowhere://host/m' needs a client .*: fsspec has none of nowhere://\."):
        storage.exists("nowhere://host/m")


def test_a_local_name_may_have_colons(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/a:b"
    storage.replace(uri, b"1")
    assert storage.read(uri) == b"1"


def test_the_name_of_a_nameservice_may_have_capitals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = {
        "dfs.nameservices": "PRODHA",
        "dfs.ha.namenodes.PRODHA": "nn1",
        "dfs.namenode.rpc-address.PRODHA.nn1": "h:8020",
    }
    entries = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{''.join(entries)}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    client, path = filesystems.locate("hdfs://PRODHA/trainyard")
    assert (client.address, path) == ("hdfs://PRODHA", "/trainyard")


@pytest.mark.parametrize(
    "uri",
    ["http://host/run.json", "https://host/x", "simplecache::https://host/x", "github://org:repo@sha/x"],
)
def test_a_server_of_the_web_is_no_storage(uri: str) -> None:
    """URIs come out of documents too: whoever wrote one would have API servers ask any server."""
    with pytest.raises(TrainyardError, match=r":// is not a storage\."):
        storage.read(uri)
