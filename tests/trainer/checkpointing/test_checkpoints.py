"""Checkpoints on the disk: which are written, which are whole, and what is made of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.runs import EVERY, RECIPES, losses, ordered, whole
from trainyard.errors import TrainyardError
from trainyard.schemas import checkpoint as index
from trainyard.schemas.checkpoint import Checkpoint, File
from trainyard.trainer.checkpointing.checkpoints import Checkpoints, Position, Saved
from trainyard.trainer.loop import engine as loop
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.world import World

Run = Callable[..., Any]


@pytest.fixture
def cut(batches: str, tmp_path: Path) -> Run:
    """A run of one rank in `tmp_path` that was cut off in its second epoch; it goes on with what is given."""

    def go_on(**options: Any) -> list[dict[str, float]]:
        return ordered(World(), batches, str(tmp_path), EVERY["allreduce"], None, options)

    with pytest.raises(RuntimeError, match="had enough"):
        ordered_alone(batches, tmp_path, 16)
    return go_on


def ordered_alone(batches: str, folder: Path, last: int) -> None:
    """As `ordered`, and fails in its `last`-th forward pass."""

    def failing(engine: Any, share: Any) -> None:
        if engine._at.updates + 1 == last:
            engine.run.checkpoints.wait()
            raise RuntimeError("the model had enough")
        update(engine, share)

    update = loop._Engine._update
    patch = pytest.MonkeyPatch()
    patch.setattr(loop._Engine, "_update", failing)
    try:
        ordered(World(), batches, str(folder), EVERY["allreduce"], None, {})
    finally:
        patch.undo()


def test_it_goes_on_in_the_middle_of_an_epoch(
    cut: Run, undisturbed: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    assert losses(cut()) == undisturbed
    assert "step-00000014-group-1: epoch 2, step 3" in capfd.readouterr().out


def checksum_error(uri: str) -> str:
    file = next(Path(uri).glob("__0_0.distcp"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return "__0_0.distcp was altered: its checksum differs"


def cut_short(uri: str) -> str:
    file = Path(uri, "loop.pt")
    file.write_bytes(file.read_bytes()[:100])
    return "loop.pt has 100 of "


def without_a_file(uri: str) -> str:
    Path(uri, ".metadata").unlink()
    return ".metadata is missing"


def unfinished(uri: str) -> str:
    Path(uri, index.INDEX).unlink()
    return "it was not finished"


@pytest.mark.parametrize("damage", [altered, cut_short, without_a_file, unfinished])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(
    cut: Run,
    tmp_path: Path,
    undisturbed: list[float],
    capfd: pytest.CaptureFixture[str],
    damage: Callable[[str], str],
) -> None:
    newest = whole(tmp_path)[0]
    problem = damage(newest)
    assert losses(cut()) == undisturbed
    said = capfd.readouterr().out
    assert f"checkpoint {newest} is passed over: {problem}" in said
    assert "step-00000011-group-1: epoch 2, step 0" in said


def test_another_run_begins_from_its_own_start(cut: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert len(cut(seed=5)) == 3
    said = capfd.readouterr().out
    assert "it is of another recipe, dataset, batch size, seed or strategy" in said and "going on" not in said


def test_more_epochs_go_on_from_the_end(cut: Run, undisturbed: list[float]) -> None:
    cut()
    assert len(cut(epochs=3)) == 3, "there is nothing left to do"


def test_the_newest_and_the_best_stay(cut: Run, tmp_path: Path) -> None:
    cut(keep_checkpoints=3)
    found = [Checkpoint.load(f"{uri}/{index.INDEX}") for uri in whole(tmp_path)]
    assert len(found) in (3, 4)
    assert [c.updates for c in found[:3]] == [33, 31, 28]
    assert any(c.best for c in found)
    assert len(list((tmp_path / "checkpoints").iterdir())) == len(found)


def test_an_older_gang_leaves_alone_what_a_later_one_saves(tmp_path: Path) -> None:
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


class Runs:
    """Writes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self._file,))


@pytest.mark.parametrize("name", ["loop.pt", "metadata.pt"])
def test_code_in_a_checkpoint_is_not_run(cut: Run, tmp_path: Path, name: str) -> None:
    """Whoever can write there can also make the checksums fit."""
    newest = whole(tmp_path)[0]
    file = Path(newest, name)
    torch.save(Runs(tmp_path / "ran"), file)
    found = Checkpoint.load(f"{newest}/{index.INDEX}")
    made = File(bytes=file.stat().st_size, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
    Path(newest, index.INDEX).write_text(found.model_copy(update={"files": found.files | {name: made}}).to_json())
    with pytest.raises(Exception, match=r"weights_only|Weights only|torch\.load"):
        cut()
    assert not (tmp_path / "ran").exists()


def test_a_schedule_that_cannot_be_loaded_again_is_refused(batches: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"schedule has a state that cannot be loaded again.*state_dict\(\)"):
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


def test_what_is_saved_is_the_state_of_that_step(tmp_path: Path) -> None:
    """The copy is taken before training goes on."""
    kept = Checkpoints(str(tmp_path), "run", "a", World(), 2)
    weights = torch.zeros(1000)
    kept.save(Position(1), {"model": {"w": weights}}, {}, best=False)
    weights += 1
    kept.wait()
    found = Saved(whole_in(tmp_path), Checkpoint.load(f"{whole_in(tmp_path)}/{index.INDEX}"))
    assert not found.tensors("model")["w"].any()


def whole_in(root: Path) -> str:
    return index.list_checkpoints(str(root))[0][2]
