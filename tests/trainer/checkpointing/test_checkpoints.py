"""Checkpoints in storage: which are written, which are valid, and how they are restored."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.runs import RECIPES, STRATEGIES, get_losses, list_committed, train_with_fault
from trainyard.errors import TrainyardError
from trainyard.schemas import checkpoint as index
from trainyard.schemas.checkpoint import Checkpoint, File
from trainyard.trainer.checkpointing.checkpoints import Checkpoints, Position, SavedCheckpoint
from trainyard.trainer.loop import engine as loop
from trainyard.trainer.loop.fit import fit
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

    def fail(engine: Any, batch: Any) -> None:
        if engine._position.updates + 1 == last:
            engine.run.checkpoints.wait()
            raise RuntimeError("the model failed")
        update(engine, batch)

    update = loop._Engine._update
    patch = pytest.MonkeyPatch()
    patch.setattr(loop._Engine, "_update", fail)
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


def test_a_different_run_starts_from_the_beginning(interrupted: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert len(interrupted(seed=5)) == 3
    output = capfd.readouterr().out
    assert "it is of another recipe, dataset, batch size, seed or strategy" in output and "resuming" not in output


def test_a_finished_run_has_nothing_left_to_do(interrupted: Run, uninterrupted: list[float]) -> None:
    interrupted()
    assert len(interrupted(epochs=3)) == 3, "no further epoch"


def test_the_newest_and_the_best_checkpoints_are_kept(interrupted: Run, tmp_path: Path) -> None:
    interrupted(keep_checkpoints=3)
    checkpoints = [Checkpoint.load(f"{uri}/{index.INDEX}") for uri in list_committed(tmp_path)]
    assert len(checkpoints) in (3, 4)
    assert [c.updates for c in checkpoints[:3]] == [33, 31, 28]
    assert any(c.best for c in checkpoints)
    assert len(list((tmp_path / "checkpoints").iterdir())) == len(checkpoints)


def test_an_older_group_does_not_remove_checkpoints_of_a_later_one(tmp_path: Path) -> None:
    root = str(tmp_path)
    older = Checkpoints(root, "run", "a", World(), 1)
    older.save(Position(1), {"model": {"w": torch.ones(2)}}, {}, best=False)
    older.wait()
    later = Checkpoints(root, "run", "a", World(), 1)
    assert (older.group, later.group) == (1, 2)
    for updates in (2, 3):
        later.save(Position(updates), {"model": {"w": torch.ones(2)}}, {}, best=False)
    later.wait()
    older.save(Position(9), {"model": {"w": torch.ones(2)}}, {}, best=False)
    older.wait()
    assert [(u, g) for u, g, _ in index.list_checkpoints(root)] == [(9, 1), (3, 2)]


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


def test_a_checkpoint_that_cannot_be_written_fails_the_run(batches: str, tmp_path: Path) -> None:
    (tmp_path / "c").write_text("a file where a directory should be")
    with pytest.raises(TrainyardError, match="a checkpoint could not be written to"):
        fit(
            f"{RECIPES}:linear", dataset=batches, model=str(tmp_path / "m"), checkpoints=str(tmp_path / "c"),
            batch_size=50, epochs=2,
        )  # fmt: skip


def test_the_saved_state_is_that_of_its_step(tmp_path: Path) -> None:
    """The state is copied before training continues."""
    checkpoints = Checkpoints(str(tmp_path), "run", "a", World(), 2)
    weights = torch.zeros(1000)
    checkpoints.save(Position(1), {"model": {"w": weights}}, {}, best=False)
    weights += 1
    checkpoints.wait()
    saved = SavedCheckpoint(get_newest(tmp_path), Checkpoint.load(f"{get_newest(tmp_path)}/{index.INDEX}"))
    assert not saved.read_tensors("model")["w"].any()


def get_newest(root: Path) -> str:
    return index.list_checkpoints(str(root))[0][2]
