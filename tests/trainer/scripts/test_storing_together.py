"""Checkpoints of scripts on all ranks: each stores the files of its own, and rank 0 commits those of one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from tests.trainer.scripts.serving import Worker, count, names, wait_for
from trainyard.errors import TrainyardError, UnavailableError
from trainyard.schemas.runs import checkpoint
from trainyard.schemas.runs.script_checkpoint import CheckpointFile, name_content
from trainyard.trainer import store_checkpoints
from trainyard.trainer.connections.store import Store
from trainyard.trainer.group.group_server import GroupServer
from trainyard.trainer.scripts.snapshots import SnapshotError
from trainyard.trainer.scripts.storing import Changes, merge


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoints")


@pytest.fixture
def pair(root: str, tmp_path: Path) -> Iterator[Callable[[int], list[Worker]]]:
    """Return a function that starts a group of workers that all store files."""
    with ExitStack() as stack:

        def begin(size: int = 2) -> list[Worker]:
            folder = tmp_path / f"group {len(names(root, 'groups'))}"
            server = stack.enter_context(GroupServer("127.0.0.1"))
            main = Worker(root, folder / "0", 0, size)
            workers = [main, *(Worker(root, folder / str(rank), rank, size, main.found) for rank in range(1, size))]
            for worker in workers:
                stack.enter_context(worker.serve(Store(server.address, timedelta(seconds=30))))
            return workers

        yield begin


def store_all(workers: list[Worker]) -> None:
    for worker in reversed(workers):
        worker.call(store_checkpoints)
    for worker in workers:
        wait_for(lambda worker=worker: not (worker.folder / "snapshot").exists())  # type: ignore[misc]


def test_all_workers_store_a_part_and_get_all_of_them(root: str, pair: Callable[[int], list[Worker]]) -> None:
    first, second = pair(2)
    for number in ("1", "2"):
        for rank, worker in enumerate((first, second)):
            worker.write(**{f"part{rank}": number})
        first.write(metadata=number)
        store_all([first, second])
    assert count(root) == 2
    expected = {"metadata": "2", "part0": "2", "part1": "2"}
    first, second = pair(2)
    assert first.read() == second.read() == expected
    first.write(metadata="3")  # the second worker still has the file as it was
    (second.files / "part1").unlink()
    store_all([first, second])
    (alone,) = pair(1)
    assert alone.read() == {"metadata": "3", "part0": "2"}


def test_a_checkpoint_has_the_files_that_all_workers_stored_by_the_same_call(
    root: str, pair: Callable[[int], list[Worker]]
) -> None:
    first, second = pair(2)
    for worker in (first, second):
        worker.write(**{f"of {worker is first}": "1"})
    store_all([first, second])
    second.write(**{"of False": "2"})
    second.store()  # the first one has not called yet
    second.write(**{"of False": "3"})
    second.store()
    first.write(**{"of True": "2"})
    first.store()
    assert [worker.read() for worker in pair(2)] == [{"of False": "2", "of True": "2"}] * 2


def test_a_worker_may_use_its_content_again_when_the_checkpoints_have_it_of_another_worker(
    pair: Callable[[int], list[Worker]],
) -> None:
    first, second = pair(2)
    first.write(config="c", model="1")
    store_all([first, second])
    second.write(config="c")
    store_all([first, second])
    for number in ("3", "4", "5"):
        first.write(model=number)
        store_all([first, second])
    (second.files / "config").rename(second.files / "renamed")
    store_all([first, second])
    assert pair(2)[1].read() == {"config": "c", "model": "5", "renamed": "c"}


def test_a_worker_removes_no_file_that_another_has_written(pair: Callable[[int], list[Worker]]) -> None:
    first, second = pair(2)
    first.write(part0="1")
    second.write(part1="1")
    store_all([first, second])
    for attempt in ("2", "3"):
        first, second = pair(2)
        assert first.read()["part0"] == "1"
        if attempt == "2":
            (second.files / "part0").unlink()
        second.write(part1=attempt)
        for _ in range(2):
            store_all([first, second])
    first, second = pair(2)
    (second.files / "part1").unlink()
    store_all([first, second])
    first.write(new="1")
    store_all([first, second])
    assert pair(2)[0].read() == {"new": "1", "part0": "1"}


def test_a_call_that_stores_nothing_does_not_mix_later_ones(root: str, pair: Callable[[int], list[Worker]]) -> None:
    first, second = pair(2)
    (second.files / "12:30").touch()
    for number in ("1", "2", "3"):
        first.write(part0=number)
        second.write(part1=number)
        if number == "2":
            (second.files / "12:30").unlink()
        for worker in (second, first):
            with suppress(SnapshotError):
                worker.call(store_checkpoints)
    for worker in (second, first):
        worker.session.finish(take_last=False, seconds=30)
    assert [found.updates for found in checkpoint.list_checkpoints(root)] == [3, 2]
    assert pair(2)[0].read() == {"part0": "3", "part1": "3"}


def test_the_last_files_are_stored_if_no_worker_has_failed(pair: Callable[[int], list[Worker]]) -> None:
    first, second = pair(2)
    first.write(a="1")
    second.write(b="1")
    second.session.finish(take_last=True, seconds=30)
    first.session.finish(take_last=True, seconds=30)
    first, second = pair(2)
    assert first.read() == {"a": "1", "b": "1"}
    first.write(a="2")
    second.write(b="half wr")
    second.session.finish(take_last=False, seconds=30)
    first.session.finish(take_last=True, seconds=30)
    assert pair(2)[0].read() == {"a": "1", "b": "1"}


def test_the_end_does_not_wait_for_a_lost_worker_for_ever(root: str, pair: Callable[[int], list[Worker]]) -> None:
    first, _ = pair(2)
    first.write(a="1")
    first.call(store_checkpoints)
    with pytest.raises(UnavailableError, match=r"no answer within 0\.3 s"):
        first.session.finish(take_last=True, seconds=0.3)
    assert count(root) == 0


def test_workers_that_write_different_content_to_one_file_are_named(pair: Callable[[int], list[Worker]]) -> None:
    first, second = pair(2)
    first.write(log="a")
    second.write(log="b")
    store_all([first, second])
    with pytest.raises(TrainyardError, match="ranks 0 and 1 have written different content to 'log'"):
        first.session.finish(take_last=True, seconds=30)


def file(digit: str, rank: int = 0) -> CheckpointFile:
    name = name_content(1, 1, digit * 64)
    return CheckpointFile(bytes=1, sha256=digit * 64, modified_ns=0, content=name, rank=rank)


def test_files_of_workers_are_merged() -> None:
    restored = {"a": file("a"), "b": file("b"), "c": file("c")}
    changes = [
        Changes({"a": file("d"), "same": file("e")}, {"b"}),
        Changes({"same": file("e"), "new": file("f")}, {"b"}),
    ]
    merged = {"a": file("d"), "c": file("c"), "same": file("e"), "new": file("f")}
    assert merge(restored, restored, changes) == merged
    assert merge(restored, restored, [Changes()]) == restored
    assert Changes.from_json(changes[0].to_json()) == changes[0]


@pytest.mark.parametrize(
    ("committed", "removed_by", "stays"),
    [
        (file("a", rank=1), {0, 1}, False),
        (file("a", rank=1), {1}, False),
        (file("a", rank=1), {0}, True),
        (file("b", rank=0), {0}, False),  # rank 0 has written it since
        (file("a", rank=7), {0}, True),  # of a larger group
        (file("a", rank=7), {0, 1}, False),
        (None, {0}, False),  # it was removed before
    ],
)
def test_a_file_is_removed_by_its_writer_or_by_all(
    committed: CheckpointFile | None, removed_by: set[int], stays: bool
) -> None:
    restored = {"a": file("a", rank=1 if committed is None else committed.rank)}
    changes = [Changes(removed={"a"} if rank in removed_by else set()) for rank in (0, 1)]
    assert merge(restored, {"a": committed} if committed else {}, changes) == (restored if stays else {})


def test_a_worker_that_starts_late_still_finds_what_its_group_restores(root: str, tmp_path: Path) -> None:
    first = Worker(root, tmp_path / "first")
    with first.serve():
        first.write(a="1")
        first.store()
    first = Worker(root, tmp_path / "next")
    late = Worker(root, tmp_path / "late", 1, 2, first.found)
    with first.serve():
        for number in ("2", "3", "4"):
            first.write(a=number)
            first.store()
    with late.serve():
        assert late.read() == {"a": "1"}
