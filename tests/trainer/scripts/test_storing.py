"""Checkpoints of scripts: they are stored as a whole or not at all, and restored for the next group."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import pytest

from tests.trainer.scripts.serving import Worker, count, names, read_files, wait_for
from trainyard.errors import TrainyardError, UnavailableError
from trainyard.files import storage
from trainyard.schemas.runs import checkpoint
from trainyard.schemas.runs.script_checkpoint import find_unused, name_content
from trainyard.trainer import report_metrics, store_checkpoints
from trainyard.trainer.scripts.checkpoints import SavedProgress
from trainyard.trainer.scripts.session import FOLDER, restore


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoints")


@pytest.fixture
def start(root: str, tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    """Return a function that starts the only worker of the next group."""
    numbers = iter(range(100))
    with ExitStack() as stack:

        def begin() -> Worker:
            worker = Worker(root, tmp_path / f"worker {next(numbers)}")
            stack.enter_context(worker.serve())
            return worker

        yield begin


def restored_by(start: Callable[[], Worker]) -> dict[str, str]:
    return start().read()


def test_the_next_group_begins_with_the_files_that_were_stored_last(start: Callable[[], Worker]) -> None:
    worker = start()
    assert worker.read() == {}
    (worker.files / "epoch 1").mkdir()
    (worker.files / "epoch 1/.metadata").write_text("parts")
    worker.write(model="1", old="x")
    os.utime(worker.files / "model", (1000, 1000))
    worker.store()
    (worker.files / "old").unlink()
    worker.store()
    worker.write(model="not stored")
    other = start()
    assert other.read() == {"epoch 1/.metadata": "parts", "model": "1"}
    assert (other.files / "model").stat().st_mtime == 1000
    other.write(new="y")
    other.store()
    assert restored_by(start) == {"epoch 1/.metadata": "parts", "model": "1", "new": "y"}


def test_what_has_not_changed_is_not_written_again(root: str, start: Callable[[], Worker]) -> None:
    worker = start()
    worker.write(large="x" * 1000, model="1")
    worker.store()
    worker.write(model="2")
    worker.store()
    assert len(names(root, "files")) == 3, "two of them of the file that has changed"
    other = start()
    (other.files / "large").rename(other.files / "renamed")
    other.write(large="x" * 1000)
    other.store()
    assert len(names(root, "files")) == 2, "both files have the content that is there"
    other.write(large="x" * 1001)
    other.store()
    other.write(large="x" * 1002)
    other.store()
    assert restored_by(start) == {"large": "x" * 1002, "model": "2", "renamed": "x" * 1000}


def test_only_what_the_newest_checkpoints_need_is_kept(root: str, start: Callable[[], Worker]) -> None:
    worker = start()
    for number in range(1, 6):
        worker.write(constant="c", model=str(number))
        worker.store()
    assert [found.updates for found in checkpoint.list_checkpoints(root)] == [5, 4]
    assert len(names(root, "files")) == 3
    assert count(root) == 5


def test_files_without_a_change_are_no_new_checkpoint(root: str, start: Callable[[], Worker]) -> None:
    worker = start()
    worker.store()
    worker.session.finish(take_last=True, seconds=30)
    assert names(root) == ["groups"], "no files, no checkpoint"
    worker = start()
    worker.write(model="1")
    worker.store()
    worker.store()
    worker.session.finish(take_last=True, seconds=30)
    assert count(root) == 1


def test_the_files_of_a_script_that_has_ended_are_stored_if_they_are_complete(start: Callable[[], Worker]) -> None:
    worker = start()
    worker.write(model="1")
    worker.store()
    worker.write(model="half wr")
    worker.session.finish(take_last=False, seconds=30)
    worker = start()
    assert worker.read() == {"model": "1"}
    worker.write(model="3")
    worker.session.finish(take_last=True, seconds=30)
    assert restored_by(start) == {"model": "3"}


def test_a_link_at_the_end_of_a_script_is_a_warning(
    start: Callable[[], Worker], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    worker = start()
    worker.write(model="1")
    (worker.files / "logs").symlink_to(tmp_path)
    worker.session.finish(take_last=True, seconds=30)
    assert "logs' is a link to a folder, which is not stored" in capfd.readouterr().out
    assert restored_by(start) == {"model": "1"}


def test_a_snapshot_is_stored_although_the_script_has_failed_since(start: Callable[[], Worker]) -> None:
    worker = start()
    worker.write(model="1")
    worker.call(store_checkpoints)
    worker.write(model="half wr")
    worker.session.finish(take_last=False, seconds=30)
    assert restored_by(start) == {"model": "1"}


def test_metrics_are_stored_with_the_files(start: Callable[[], Worker]) -> None:
    worker = start()
    worker.write(model="1")
    worker.call(lambda: report_metrics(epoch=1, loss=0.5, accuracy=float("nan")))
    worker.session.record_reports()
    worker.store()
    worker = start()
    assert worker.session.result == {"metrics": {"loss": 0.5}}
    worker.call(lambda: report_metrics(accuracy=0.9))
    worker.session.record_reports()
    assert worker.session.result == {"metrics": {"loss": 0.5, "accuracy": 0.9}}


def test_a_group_stores_nothing_after_the_next_one_has_started(root: str, start: Callable[[], Worker]) -> None:
    old = start()
    old.write(model="1")
    old.store()
    new = start()
    old.write(model="of the old group")
    old.store()
    assert old.session.has_failed
    with pytest.raises(TrainyardError, match="worker group 2 has started for this task, so group 1 ends"):
        old.session.finish(take_last=True, seconds=30)
    new.write(other="2")
    new.store()
    assert restored_by(start) == {"model": "1", "other": "2"}


def test_a_damaged_checkpoint_is_skipped(
    root: str, start: Callable[[], Worker], capfd: pytest.CaptureFixture[str]
) -> None:
    worker = start()
    for number in ("1", "22"):
        worker.write(model=number)
        worker.store()
    newest = checkpoint.list_checkpoints(root)[0].uri
    (content,) = [name for name in names(root, "files") if storage.size(f"{root}/files/{name}") == 2]
    for damage, error in ((b"23", "was altered: its size or checksum differs"), (None, "is missing")):
        if damage:
            storage.replace(f"{root}/files/{content}", damage)
        else:
            storage.remove(f"{root}/files/{content}")
        assert restored_by(start) == {"model": "1"}
        assert f"skipping checkpoint {newest}: {root}/files/{content} {error}\n" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("model", {"modified_ns": 10**30}),
        ("model", {"bytes": -1}),
        ("model/state", {}),  # a folder and a file of one name
        ("../model", {}),
    ],
)
def test_a_checkpoint_with_an_index_that_no_worker_writes_is_skipped_and_removed(
    root: str, start: Callable[[], Worker], path: str, fields: dict[str, int]
) -> None:
    worker = start()
    worker.write(model="0")
    worker.store()
    worker.write(model="1")
    worker.store()
    index = Path(checkpoint.list_checkpoints(root)[0].uri, checkpoint.INDEX)
    document = json.loads(index.read_text())
    document["files"][path] = document["files"]["model"] | fields
    index.write_text(json.dumps(document))
    worker = start()
    assert worker.read() == {"model": "0"}
    worker.write(model="3")
    worker.store()
    assert [found.updates for found in checkpoint.list_checkpoints(root)] == [3, 1]
    assert len(names(root, "files")) == 2


def test_nothing_of_a_damaged_checkpoint_is_restored(root: str, start: Callable[[], Worker]) -> None:
    worker = start()
    worker.write(a="intact", b="damaged", c="x" * 100)
    worker.store()
    (content,) = [name for name in names(root, "files") if storage.size(f"{root}/files/{name}") == len("damaged")]
    storage.replace(f"{root}/files/{content}", b"altered")
    worker = start()
    assert worker.read() == {}
    worker.write(new="1")
    worker.session.finish(take_last=True, seconds=30)
    assert restored_by(start) == {"new": "1"}


def test_a_document_leads_to_no_file_outside_of_the_folder(root: str, start: Callable[[], Worker]) -> None:
    worker = start()
    worker.write(model="1")
    worker.store()
    index = Path(checkpoint.list_checkpoints(root)[0].uri, checkpoint.INDEX)
    index.write_text(index.read_text().replace('"model"', '"../model"'))
    assert restored_by(start) == {}


def test_a_storage_that_fails_is_reported_and_the_last_checkpoint_must_not_fail(
    root: str, start: Callable[[], Worker], capfd: pytest.CaptureFixture[str]
) -> None:
    worker = start()
    Path(root, "files").write_text("in the way")
    worker.write(model="1")
    worker.store()
    assert "a checkpoint of the script cannot be stored: " in capfd.readouterr().out
    assert not worker.session.has_failed
    with pytest.raises(UnavailableError, match="the last checkpoint of the script cannot be stored: "):
        worker.session.finish(take_last=True, seconds=30)
    Path(root, "files").unlink()
    assert restored_by(start) == {}


def test_the_next_call_stores_what_the_one_before_could_not(root: str, start: Callable[[], Worker]) -> None:
    worker = start()
    Path(root, "files").write_text("in the way")
    worker.write(model="1", constant="c")
    worker.store()
    Path(root, "files").unlink()
    worker.write(model="2")
    worker.store()
    assert restored_by(start) == {"constant": "c", "model": "2"}


def test_a_checkpoint_whose_content_is_missing_is_not_committed(root: str, start: Callable[[], Worker]) -> None:
    worker = start()
    worker.write(constant="c", model="1")
    worker.store()
    (content,) = [name for name in names(root, "files") if name.endswith(sha256(b"c").hexdigest())]
    storage.remove(f"{root}/files/{content}")
    worker.write(model="2")
    with pytest.raises(UnavailableError, match=f"checkpoint 2 needs {content}, which {root}/files has no more"):
        worker.session.finish(take_last=True, seconds=30)
    assert count(root) == 1


def test_only_other_files_are_progress(root: str, start: Callable[[], Worker]) -> None:
    progress = SavedProgress(root)
    counts = [progress()]
    for attempt, files in enumerate(({"config": "c"}, {"config": "c"}, {"config": "c", "model": "1"}, {"model": "1"})):
        worker = start()
        for path in worker.files.iterdir():
            path.unlink()
        worker.write(**files)
        worker.call(lambda attempt=attempt: report_metrics(loss=attempt))  # type: ignore[misc]
        worker.session.record_reports()
        worker.store()
        counts.append(progress())
    assert counts == [0, 1, 1, 3, 4]
    assert SavedProgress(root)() == 4


def test_a_call_is_stored_whenever_its_snapshot_appears(
    root: str, start: Callable[[], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has looked for a snapshot, and found none, just before it appears."""
    worker = start()
    worker.write(model="1")
    looked, appeared = threading.Event(), threading.Event()
    exists = Path.exists

    def look(path: Path) -> bool:
        found = exists(path)
        if threading.current_thread().name == "checkpoints" and path.name == "snapshot" and not found:
            looked.set()
            appeared.wait(30)
        return found

    monkeypatch.setattr(Path, "exists", look)
    looked.wait(30)
    worker.call(store_checkpoints)
    appeared.set()
    wait_for(lambda: not exists(worker.folder / "snapshot"))
    assert count(root) == 1


def test_calls_of_several_processes_and_threads_are_stored_one_after_the_other(
    root: str, start: Callable[[], Worker]
) -> None:
    worker = start()
    code = (
        "import os, threading; from pathlib import Path; from trainyard.trainer import store_checkpoints\n"
        "def store(thread):\n"
        "    for number in range(3):\n"
        "        name = f'{os.getpid()}-{thread}-{number}'\n"
        "        Path(os.environ['TRAINYARD_CHECKPOINTS'], name).write_text(name * 10_000)\n"
        "        store_checkpoints()\n"
        "for thread in range(2): threading.Thread(target=store, args=(thread,)).start()"
    )
    environment = os.environ | worker.session.variables | {"PYTHONPATH": "plugins:."}
    processes = [subprocess.Popen([sys.executable, "-c", code], env=environment) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    wait_for(lambda: not (worker.folder / "snapshot").exists())
    files = restored_by(start)
    assert len(files) == 12
    assert all(text == name * 10_000 for name, text in files.items())


def test_a_signal_handler_may_call_while_a_call_stores(start: Callable[[], Worker]) -> None:
    worker = start()
    worker.write(model="1")  # so that the call waits for a tick of the clock
    interrupted: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: (store_checkpoints(), interrupted.append(1)))
    signal.setitimer(signal.ITIMER_REAL, 0.004, 0.004)
    try:
        worker.call(store_checkpoints)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted
    worker.session.finish(take_last=False, seconds=30)
    assert restored_by(start) == {"model": "1"}


def test_contents_that_a_later_checkpoint_may_need_stay() -> None:
    name = {key: name_content(*key, "a" * 64) for key in ((1, 5), (2, 3), (2, 4), (2, 5), (3, 1))}
    staged = {key: f".{content}.{'0' * 32}" for key, content in name.items()}
    everything = [*name.values(), *staged.values(), "another file"]
    unused = find_unused(everything, [], group=2, number=4)
    assert unused == [name[1, 5], name[2, 3], staged[1, 5], staged[2, 3]]


@pytest.mark.slow
def test_a_worker_that_is_killed_at_any_time_leaves_one_version(root: str, tmp_path: Path) -> None:
    """The files of two versions are never mixed, and no version that was stored is lost."""
    random.seed(0)
    program = Path(__file__).parent / "storing_forever.py"
    newest = 0
    for turn in range(4):
        (folder := tmp_path / str(turn)).mkdir()
        worker = subprocess.Popen(
            [sys.executable, str(program), root, str(folder)], env=os.environ | {"PYTHONPATH": "plugins"},
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert worker.stdout
        lines = (line.split() for line in worker.stdout)
        number = next(int(words[1]) for words in lines if words[0] == "started")
        assert number >= newest - 1, "the last call may not have stored its snapshot yet"
        for _ in range(random.randrange(3, 8)):
            newest = int(next(lines)[1])
        time.sleep(random.random() / 20)
        worker.kill()
        worker.wait()
        worker.stdout.close()
        (own := tmp_path / f"after {turn}").mkdir()
        restore(root, own)
        files = read_files(own / FOLDER)
        stored = int(files["0"][:10])
        assert stored >= newest - 1
        expected = dict.fromkeys((*map(str, range(5)), f"of {stored}"), f"{stored:10}" * 1000)
        assert files == expected | {"constant": "constant"}
