"""Files and checkpoints on a real HDFS."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from multiprocessing import get_context
from pathlib import Path

import psutil
import pytest
import torch

from stack.hadoop.cluster import Cluster
from tests.cluster.jobs import wait_for
from tests.plugins.readers import read_while_replaced
from tests.trainer.scripts.serving import Worker
from tests.trainer.workers import Workers
from trainyard.errors import DeadlineError
from trainyard.files import filesystems, hdfs, storage, uris
from trainyard.hooks import webhdfs
from trainyard.schemas.runs import checkpoint as index
from trainyard.schemas.runs.script_checkpoint import ScriptCheckpoint
from trainyard.trainer.checkpointing.checkpoints import Checkpoints, Position
from trainyard.trainer.scripts.checkpoints import ScriptCheckpoints
from trainyard.trainer.world import World

pytestmark = pytest.mark.cluster


@pytest.fixture(params=["hdfs-native", "WebHDFS"])
def uri(configured: Cluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a new file, accessed with either client."""
    if request.param == "WebHDFS":
        http = configured.get_url("namenode.http").removeprefix("http://")
        unreachable = "127.0.0.1:9"
        monkeypatch.setenv(
            "AIRFLOW_CONN_WEBHDFS_DEFAULT", json.dumps({"host": f"{unreachable},{http}", "login": "root"})
        )
        monkeypatch.setattr(filesystems, "_REGISTERED", {})
        filesystems.register(configured.storage, webhdfs.connect("webhdfs_default"))
    return uris.join(configured.storage, "files", os.urandom(4).hex())


def test_a_process_that_used_hdfs_starts_other_processes(uri: str) -> None:
    storage.create(uri, b"written")
    subprocess.run(["true"], preexec_fn=lambda: None, check=True, timeout=60)


def test_a_forked_process_creates_its_own_clients(uri: str) -> None:
    storage.create(uri, b"before the fork")
    storage.read(uri)  # its connection is kept for the next read
    with get_context("fork").Pool(1) as pool:
        assert pool.apply_async(storage.read, [uri]).get(timeout=60) == b"before the fork"


def test_a_name_node_that_was_silent_for_a_while_is_used_again(
    configured: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, name_node = uris.join(configured.storage, "files", os.urandom(4).hex()), configured.get_pid("namenode")
    assert name_node
    storage.create(uri, b"before")
    os.kill(name_node, signal.SIGSTOP)
    try:
        wait_for(lambda: psutil.Process(name_node).status() == psutil.STATUS_STOPPED)
        with monkeypatch.context() as short, pytest.raises(DeadlineError, match="no answer within 1 s"):
            short.setattr(hdfs, "CALL_SECONDS", 1.0)
            storage.exists(uri)
    finally:
        os.kill(name_node, signal.SIGCONT)
    assert storage.read(uri) == b"before"


def test_files_and_directories_have_the_permissions_that_the_site_leaves(
    configured: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hdfs-native created each directory with 0755, so that no other user of a group could write to it."""
    for name in ("core-site.xml", "hdfs-site.xml"):
        shutil.copy(Path(os.environ["HADOOP_CONF_DIR"], name), tmp_path)
    text = (tmp_path / "core-site.xml").read_text()
    umask = "<property><name>fs.permissions.umask-mode</name><value>007</value></property></configuration>"
    (tmp_path / "core-site.xml").write_text(text.replace("</configuration>", umask))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(hdfs, "_filesystems", {})
    directory = uris.join(configured.storage, "files", os.urandom(4).hex())
    storage.create(f"{directory}/file", b"1")
    fs, path = filesystems.locate(directory)
    assert [fs.info(one)["permission"] for one in (path, f"{path}/file")] == [0o770, 0o660]


def test_only_one_of_two_creations_succeeds(uri: str) -> None:
    storage.create(uri, b"first")
    with pytest.raises(FileExistsError):
        storage.create(uri, b"second")
    assert storage.read(uri) == b"first"
    assert storage.list_names(uri.rsplit("/", 1)[0]).count(uri.rsplit("/", 1)[1]) == 1


def test_a_replaced_file_has_the_new_content(uri: str) -> None:
    storage.replace(uri, b"old")
    storage.replace(uri, b"new")
    assert storage.read(uri) == b"new"


def test_a_file_is_never_missing_or_visible_in_part_while_it_is_replaced(uri: str) -> None:
    versions = [bytes([n]) * 10_000 for n in range(20)]
    seen = read_while_replaced(uri, versions)
    assert seen[0] == versions[0] and set(seen) <= set(versions)


def test_a_range_and_the_size_of_a_file_are_read(uri: str) -> None:
    storage.create(uri, b"0123456789")
    assert (storage.read_range(uri, 3, 4), storage.size(uri)) == (b"3456", 10)
    with pytest.raises(OSError, match="has 2 of 4 bytes from byte 8 on"):
        storage.read_range(uri, 8, 4)


def test_files_are_listed_with_a_mark_that_changes_with_them(uri: str) -> None:
    storage.create(f"{uri}/a", b"1")
    storage.create(f"{uri}/below/b", b"22")
    before = storage.list_files(uri)
    assert [(name.rsplit("/", 1)[1], size) for name, size, _ in before] == [("a", 1), ("b", 2)]
    storage.replace(f"{uri}/a", b"3")
    assert storage.list_files(uri)[1:] == before[1:] and storage.list_files(uri)[0] != before[0]
    assert storage.list_files(f"{uri}/bel*") == before[1:]
    assert storage.list_files(f"{uri}/below/b") == storage.list_files(f"{uri}/below/*") == before[1:]


def test_files_are_found_at_any_depth_with_their_size_and_age(uri: str) -> None:
    before = time.time() - 60
    for name in ("b", "a/c/d"):
        storage.create(f"{uri}/{name}", b"four")
    found = storage.find_files(uri)
    assert [(file.path, file.bytes) for file in found] == [("a/c/d", 4), ("b", 4)]
    assert all(file.modified and before <= file.modified <= time.time() + 60 for file in found)
    assert storage.list_directories(uri) == ["a"]
    assert storage.find_files(f"{uri}/nothing") == storage.list_directories(f"{uri}/nothing") == []


def test_a_missing_file_is_reported_as_missing(uri: str) -> None:
    assert not storage.exists(uri)
    with pytest.raises(FileNotFoundError):
        storage.read(uri)
    storage.remove(uri)


@pytest.mark.parametrize("character", ["#", "?", ";", " ", "%", "%20", "&", "ä", "[1]", "*"])
def test_the_whole_of_a_name_counts(uri: str, character: str) -> None:
    """hdfs-native took what is before `#`, `?` or `;` for the name, and removed or replaced another directory."""
    storage.create(f"{uri}/sales/file", b"other")
    name = f"{uri}/sales{character}new"
    storage.remove(name)
    storage.create(f"{name}/file", b"1")
    storage.replace(f"{name}/file", b"2")
    assert (storage.read(f"{name}/file"), storage.read(f"{uri}/sales/file")) == (b"2", b"other")
    assert storage.list_names(uri) == sorted(["sales", f"sales{character}new"])
    storage.move(name, f"{name}-moved")
    storage.remove(f"{name}-moved")
    assert storage.list_names(uri) == ["sales"]


def test_a_directory_moves_in_one_step(uri: str) -> None:
    storage.create(f"{uri}/a", b"1")
    storage.move(uri, f"{uri}-moved")
    assert not storage.exists(uri) and storage.read(f"{uri}-moved/a") == b"1"


def test_an_upload_does_not_replace_a_file(uri: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"new")
    storage.create(uri, b"old")
    storage.upload(uri, tmp_path / "file")
    assert storage.read(uri) == b"old"
    storage.upload(f"{uri}-2", tmp_path / "file")
    assert storage.read(f"{uri}-2") == b"new"


def test_checkpoints_of_two_workers_are_written_and_read(configured: Cluster) -> None:
    """Two workers write and prune them, and one worker lists and reads them; a damaged one is skipped."""
    root = uris.join(configured.storage, "checkpoints", os.urandom(4).hex())
    with Workers(2) as workers:
        workers(save_checkpoints, root)
    assert [updates for _, updates, _ in index.list_checkpoints(root)] == [3, 2]
    newest = Checkpoints(root, "run", "a", World(), 2).newest
    assert newest and newest.position == Position(3) and newest.read_loop_state() == {"number": 3}
    assert newest.read_tensors("model")["w"].tolist() == [3.0] * 1000
    assert newest.read_tensors("ranks.1")["r"].tolist() == [1.0]
    name = next(name for name in newest.index.files if name.endswith(".distcp"))
    storage.replace(uris.join(newest.uri, name), b"something else")
    before = Checkpoints(root, "run", "a", World(), 2).newest
    assert before and before.position == Position(2)


def save_checkpoints(world: World, root: str) -> None:
    checkpoints = Checkpoints(root, "run", "a", world, 2)
    for updates in (1, 2, 3):
        own_state = {str(world.rank): {"r": torch.tensor([float(world.rank)])}}
        state = {"model": {"w": torch.full((1000,), float(updates))}, "ranks": own_state}
        checkpoints.save(Position(updates), state, {}, {"number": updates}, best=False)
    checkpoints.wait()


@pytest.mark.full
def test_the_files_of_a_script_are_stored_and_restored(uri: str, tmp_path: Path) -> None:
    for group in range(3):
        worker = Worker(uri, tmp_path / str(group))
        assert worker.read() == ({"constant": "c" * 9_000_000, "model": f"{group - 1} 2"} if group else {})
        with worker.serve() as session:
            for number in range(3):
                worker.write(constant="c" * 9_000_000, model=f"{group} {number}")
                worker.store()
            session.finish(take_last=True, seconds=60)
    assert [(found.group, found.updates) for found in index.list_checkpoints(uri)] == [(3, 9), (3, 8)]
    checkpoints = [ScriptCheckpoint.from_json(worker.found.document or "")]  # its content stays while the group runs
    checkpoints += [ScriptCheckpoints(uri, 3).read_number(number, 3) for number in (8, 9)]
    contents = {file.content for checkpoint in checkpoints for file in checkpoint.files.values()}
    assert set(storage.list_names(f"{uri}/files")) == contents and len(contents) == 4
