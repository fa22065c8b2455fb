"""Checkpoints in storage: which are written, which are valid, and how they are restored."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.runs import RECIPES, STRATEGIES, get_losses, list_committed, train_with_fault
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.schemas.runs import checkpoint as index
from trainyard.schemas.runs.checkpoint import Checkpoint, File
from trainyard.trainer.checkpointing.checkpoints import Checkpoints, Position, SavedCheckpoint
from trainyard.trainer.checkpointing.staging import Staging
from trainyard.trainer.loop import engine as loop
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.loop.step import Stepper
from trainyard.trainer.measuring.tracking import Tracker
from trainyard.trainer.world import World

Run = Callable[..., Any]


@pytest.fixture
def interrupted(batches: str, tmp_path: Path) -> Run:
    """Interrupt a run in its second epoch, and return a function that resumes it with other options."""

    def resume(**options: Any) -> list[dict[str, float]]:
        return train_with_fault(World(), batches, str(tmp_path), STRATEGIES["allreduce"], None, options)

    with pytest.raises(RuntimeError, match="model failed"):
        train_until_failure(batches, tmp_path, 16)
    return resume


def train_until_failure(batches: str, folder: Path, last: int) -> None:
    """Train, and fail in update number `last`."""

    def fail(stepper: Any, batch: Any) -> None:
        if stepper._state.position.updates + 1 == last:
            stepper._state.run.checkpoints.wait()
            raise RuntimeError("the model failed")
        take(stepper, batch)

    take = Stepper.take
    patch = pytest.MonkeyPatch()
    patch.setattr(Stepper, "take", fail)
    try:
        train_with_fault(World(), batches, str(folder), STRATEGIES["allreduce"], None, {})
    finally:
        patch.undo()


def test_a_run_resumes_in_the_middle_of_an_epoch(
    interrupted: Run, uninterrupted: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    assert get_losses(interrupted()) == uninterrupted
    assert "step-00000014-group-1: epoch 2, step 3" in capfd.readouterr().out


def alter_a_file(uri: str) -> str:
    file = next(Path(uri).glob("__0_0.distcp"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return "__0_0.distcp was altered: its checksum differs"


def truncate_a_file(uri: str) -> str:
    file = Path(uri, "loop.pt")
    file.write_bytes(file.read_bytes()[:100])
    return "loop.pt has 100 of "


def remove_a_file(uri: str) -> str:
    Path(uri, ".metadata").unlink()
    return ".metadata is missing"


def remove_the_index(uri: str) -> str:
    Path(uri, index.INDEX).unlink()
    return "it was not committed"


@pytest.mark.slow
@pytest.mark.parametrize("damage", [alter_a_file, truncate_a_file, remove_a_file, remove_the_index])
def test_a_damaged_checkpoint_is_skipped_with_a_warning(
    interrupted: Run,
    tmp_path: Path,
    uninterrupted: list[float],
    capfd: pytest.CaptureFixture[str],
    damage: Callable[[str], str],
) -> None:
    newest = list_committed(tmp_path)[0]
    problem = damage(newest)
    assert get_losses(interrupted()) == uninterrupted
    output = capfd.readouterr().out
    assert f"skipping checkpoint {newest}: {problem}" in output
    assert "step-00000011-group-1: epoch 2, step 0" in output


@pytest.mark.slow
def test_a_different_run_starts_from_the_beginning(interrupted: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert len(interrupted(seed=5)) == 3
    output = capfd.readouterr().out
    assert "it is of another recipe, dataset, batch size, seed or strategy" in output and "resuming" not in output


@pytest.mark.slow
def test_a_finished_run_has_nothing_left_to_do(
    interrupted: Run, uninterrupted: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted()
    checkpoints = list_committed(tmp_path)
    monkeypatch.setattr(loop._Engine, "run_epoch", None)
    assert get_losses(interrupted()) == uninterrupted
    assert list_committed(tmp_path) == checkpoints, "no further checkpoint"


@pytest.mark.slow
def test_a_run_keeps_as_many_of_its_newest_checkpoints_as_keep_checkpoints(interrupted: Run, tmp_path: Path) -> None:
    epochs = interrupted(keep_checkpoints=3)
    assert min(epochs, key=lambda epoch: epoch["validation_loss"]) is epochs[-1], "the newest is that of the best epoch"
    assert [Path(uri).name for uri in list_committed(tmp_path)] == [
        f"step-{updates:08d}-group-2" for updates in (33, 31, 28)
    ]
    assert len(list_directories(tmp_path / "checkpoints")) == 3


@pytest.mark.parametrize(
    ("best", "kept"),
    [((), [6, 5]), ((1, 2), [6, 5, 2]), ((2, 4), [6, 5, 4]), ((5,), [6, 5]), ((2, 6), [6, 5])],
)
def test_the_checkpoint_of_the_best_epoch_is_kept_beside_the_newest(
    tmp_path: Path, best: tuple[int, ...], kept: list[int]
) -> None:
    checkpoints = Checkpoints(str(tmp_path), "run", "a", World(), 2)
    for updates in range(1, 7):
        checkpoints.save(Position(updates), {"model": {"w": torch.ones(2)}}, {}, {}, best=updates in best)
    checkpoints.wait()
    assert [updates for _, updates, _ in index.list_checkpoints(str(tmp_path))] == kept


def start_group(root: Path, fingerprint: str = "run", keep: int = 1, world: World | None = None) -> Checkpoints:
    return Checkpoints(str(root), fingerprint, "a", world or World(), keep)


def save(checkpoints: Checkpoints, *updates: int, best: bool = False) -> None:
    for number in updates:
        checkpoints.save(Position(number), {"model": {"w": torch.full((2,), float(number))}}, {}, {}, best)
    checkpoints.wait()


def list_directories(root: Path) -> list[tuple[int, int]]:
    """Return (group, updates) of each checkpoint, the newest first."""
    return [(group, updates) for group, updates, _ in index.list_checkpoints(str(root))]


def test_checkpoints_of_another_run_neither_replace_new_ones_nor_are_removed(tmp_path: Path) -> None:
    """The loss diverged at step 1000, and the task runs again with another learning rate."""
    save(start_group(tmp_path, "first learning rate"), 990, 1000)
    second = start_group(tmp_path, "second learning rate")
    assert second.newest is None
    save(second, 10, 20)
    assert list_directories(tmp_path) == [(2, 20), (1, 1000)]
    resumed = start_group(tmp_path, "second learning rate").newest
    assert resumed is not None and resumed.position.updates == 20
    back = start_group(tmp_path, "first learning rate").newest
    assert back is not None and back.position.updates == 1000


def test_a_checkpoint_of_a_later_group_is_newer_than_one_after_more_updates(tmp_path: Path) -> None:
    """The later group resumed from before the newest checkpoint, which was damaged."""
    first = start_group(tmp_path, keep=2)
    save(first, 10, 20)
    next(Path(index.checkpoint_uri(str(tmp_path), 20, 1)).glob("__0_0.distcp")).write_bytes(b"damaged")
    second = start_group(tmp_path, keep=2)
    assert second.newest is not None and second.newest.position.updates == 10
    save(second, 13)
    assert list_directories(tmp_path) == [(2, 13), (1, 10)], "the damaged one is removed, and is none of the two kept"
    third = start_group(tmp_path).newest
    assert third is not None and third.position.updates == 13


def test_each_start_of_a_group_claims_a_higher_number_at_once(tmp_path: Path) -> None:
    assert [start_group(tmp_path).group for _ in range(3)] == [1, 2, 3]


def test_of_groups_that_start_at_the_same_time_each_has_a_number_of_its_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: index.claim_group(str(tmp_path)), range(40)))
    assert len(set(numbers)) == 40
    assert index.read_newest_group(str(tmp_path)) == max(numbers)


def test_a_group_that_was_taken_for_dead_commits_nothing_and_removes_nothing(tmp_path: Path) -> None:
    older = start_group(tmp_path)
    save(older, 1)
    start_group(tmp_path)
    with pytest.raises(TrainyardError, match="worker group 2 has started for this task, so group 1 ends"):
        save(older, 9)
    resumed = start_group(tmp_path).newest
    assert resumed is not None and resumed.position.updates == 1


def test_an_older_group_does_not_remove_checkpoints_of_a_later_one(tmp_path: Path) -> None:
    older = start_group(tmp_path)
    save(older, 1)
    later = start_group(tmp_path)
    save(later, 2, 3)
    older._prune()
    assert (2, 3) in list_directories(tmp_path)


def test_a_few_checkpoints_that_cannot_be_written_do_not_end_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    group = start_group(tmp_path, keep=5)
    save(group, 1)
    commit, outage = index.commit, OSError("the NameNode is in safe mode")

    def fail(*_: Any) -> None:
        raise outage

    monkeypatch.setattr(index, "commit", fail)
    save(group, 2, 3)
    assert (group.failures, group.last_error) == (2, "OSError: the NameNode is in safe mode")
    assert "could not be written to" in capfd.readouterr().out
    monkeypatch.setattr(index, "commit", commit)
    save(group, 4)
    assert (group.failures, group.last_error) == (0, None)
    assert group.warnings == [
        "Of the checkpoints, 2 could not be written; the last error was: OSError: the NameNode is in safe mode"
    ]
    assert list_directories(tmp_path) == [(1, 4), (1, 1)], "what failed left nothing behind"
    monkeypatch.setattr(index, "commit", fail)
    with pytest.raises(
        TrainyardError, match=r"4 checkpoints in a row could not be written to .*: OSError: the NameNode"
    ):
        save(group, 5, 6, 7, 8)


def save_without_connection(world: World, folder: str) -> str | None:
    """Lose the connection on rank 0 while it saves, and return its error; rank 1 is not in any collective."""
    checkpoints = start_group(Path(folder), world=world)

    def disconnect(*_: Any) -> Any:
        raise RuntimeError("Connection closed by peer")

    if world.is_main:
        checkpoints._saver.save = disconnect  # type: ignore[method-assign]
        save(checkpoints, 1)
    world.gather(None)
    return checkpoints.last_error


@pytest.mark.full
@pytest.mark.ranks
def test_a_worker_without_connection_to_another_enters_no_further_collective_of_the_checkpoint(tmp_path: Path) -> None:
    """The other one may still be in that of before, and gloo aborts a process that receives another number of bytes."""
    with Workers(2) as workers:
        assert workers(save_without_connection, str(tmp_path)) == ["Connection closed by peer", None]


def test_a_checkpoint_is_saved_although_older_ones_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    group = start_group(tmp_path)
    save(group, 1)

    def fail(_: str) -> None:
        raise PermissionError("the trash is not writable")

    monkeypatch.setattr(storage, "remove", fail)
    save(group, 2, 3, 4, 5, 6)
    assert (group.failures, group.warnings) == (0, [])
    assert list_directories(tmp_path)[0] == (1, 6)
    assert "cannot be removed: PermissionError: the trash is not writable" in capfd.readouterr().out


def test_the_copy_of_a_state_does_not_change_until_the_next_one() -> None:
    staging = Staging()
    weights = torch.zeros(3)
    copied = staging.copy({"w": weights, "nested": [weights, 5]})
    weights += 1
    assert copied["w"].tolist() == [0, 0, 0] and copied["nested"][1] == 5
    again = staging.copy({"w": weights, "nested": [weights, 5]})
    assert again["w"].tolist() == [1, 1, 1]
    assert again["w"].data_ptr() == copied["w"].data_ptr(), "the memory is reused"


class RunsCode:
    """Write a file when unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self._file,))


@pytest.mark.parametrize("name", ["loop.pt", "metadata.pt"])
def test_code_in_a_checkpoint_is_not_executed(interrupted: Run, tmp_path: Path, name: str) -> None:
    """An attacker with write access can also write matching checksums."""
    newest = list_committed(tmp_path)[0]
    file = Path(newest, name)
    torch.save(RunsCode(tmp_path / "ran"), file)
    checkpoint = Checkpoint.load(f"{newest}/{index.INDEX}")
    entry = File(bytes=file.stat().st_size, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
    Path(newest, index.INDEX).write_text(
        checkpoint.model_copy(update={"files": checkpoint.files | {name: entry}}).to_json()
    )
    with pytest.raises(Exception, match=r"weights_only|Weights only|torch\.load"):
        interrupted()
    assert not (tmp_path / "ran").exists()


def test_a_schedule_with_an_unsafe_state_is_refused(batches: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"state of the recipe's schedule cannot be loaded again.*state_dict\(\)"):
        fit(
            f"{RECIPES}:unsafe_schedule", dataset=batches, model=str(tmp_path), checkpoints=str(tmp_path / "c"),
            batch_size=50, epochs=2,
        )  # fmt: skip


def test_a_directory_that_cannot_be_written_to_is_refused_before_training(batches: str, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("a file where a directory should be")
    with pytest.raises(TrainyardError, match=r"checkpoints cannot be written to .*NotADirectoryError"):
        fit(
            f"{RECIPES}:linear", dataset=batches, model=str(tmp_path / "m"), checkpoints=str(tmp_path / "c"),
            batch_size=50, epochs=2,
        )  # fmt: skip


def test_the_saved_state_is_that_of_its_step(tmp_path: Path) -> None:
    """The state is copied before training continues."""
    checkpoints = Checkpoints(str(tmp_path), "run", "a", World(), 2)
    weights = torch.zeros(1000)
    checkpoints.save(Position(1), {"model": {"w": weights}}, {}, {}, best=False)
    weights += 1
    checkpoints.wait()
    saved = SavedCheckpoint(get_newest(tmp_path), Checkpoint.load(f"{get_newest(tmp_path)}/{index.INDEX}"))
    assert not saved.read_tensors("model")["w"].any()


def get_newest(root: Path) -> str:
    return index.list_checkpoints(str(root))[0][2]


def test_a_checkpoint_of_another_version_of_trainyard_is_not_removed(tmp_path: Path) -> None:
    save(start_group(tmp_path), 1)
    document = Path(index.checkpoint_uri(str(tmp_path), 1, 1)) / index.INDEX
    document.write_text(document.read_text().replace('"version": 3', '"version": 4'))
    assert '"version": 4' in document.read_text()
    save(start_group(tmp_path), 2, 3)
    assert list_directories(tmp_path) == [(2, 3), (1, 1)]


def test_a_group_that_was_taken_for_dead_publishes_nothing(batches: str, tmp_path: Path) -> None:
    class Replaced(Tracker):
        def epoch(self, number: int, metrics: object) -> None:
            index.claim_group(str(tmp_path / "checkpoints"))

        def end(self, succeeded: bool) -> None: ...

    with pytest.raises(TrainyardError, match="so group 1 ends"):
        fit(
            f"{RECIPES}:linear", dataset=batches, model=str(tmp_path / "model"), epochs=1, batch_size=48,
            checkpoints=str(tmp_path / "checkpoints"), trackers=[Replaced()],
        )  # fmt: skip
    assert not (tmp_path / "model" / "model.json").exists()


@pytest.mark.slow
def test_nothing_is_written_after_a_training_has_failed(
    batches: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = index.commit

    def commit_slowly(*arguments: Any) -> None:
        time.sleep(0.5)
        commit(*arguments)

    monkeypatch.setattr(index, "commit", commit_slowly)
    with pytest.raises(TrainyardError, match="diverged"):
        fit(
            f"{RECIPES}:diverging", dataset=batches, model=str(tmp_path / "model"), epochs=9, batch_size=48,
            checkpoint_steps=1, checkpoints=str(tmp_path / "checkpoints"),
        )  # fmt: skip
    assert [thread.name for thread in threading.enumerate() if thread.name == "checkpoint"] == []
