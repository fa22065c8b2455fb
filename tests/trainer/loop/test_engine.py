"""The steps of the training loop: gradients are clipped, and validation changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.trainer import datasets
from tests.trainer.recipes import Modes
from tests.trainer.runs import list_committed
from trainyard.schemas.checkpoint import INDEX, Checkpoint
from trainyard.trainer.loop.engine import TerminatedError
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.trained_model import load_model

RECIPES = "tests.trainer.recipes"


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("data") / "dataset"
    return datasets.write(directory, {"train": datasets.blobs(100), "validation": datasets.blobs(40, seed=1)})


def train_one_step(batches: str, model: Path, learning_rate: float, clip_norm: float | None = None) -> Tensor:
    """Return all weights after one step on the whole split."""
    fit(
        f"{RECIPES}:linear", dataset=batches, model=str(model), epochs=1, batch_size=100, clip_norm=clip_norm,
        recipe_params={"learning_rate": learning_rate},
    )  # fmt: skip
    return torch.cat([weight.flatten() for weight in load_model(str(model)).recipe.model.state_dict().values()]).cpu()


def test_clip_norm_scales_the_gradient_to_this_norm(batches: str, tmp_path: Path) -> None:
    start = train_one_step(batches, tmp_path, learning_rate=0)
    gradient = start - train_one_step(batches, tmp_path, learning_rate=1)
    clipped = start - train_one_step(batches, tmp_path, learning_rate=1, clip_norm=0.25)
    assert gradient.norm() > 0.3
    assert clipped.numpy() == pytest.approx((gradient * 0.25 / gradient.norm()).numpy(), rel=1e-3, abs=1e-6)


def test_a_gradient_below_clip_norm_is_not_changed(batches: str, tmp_path: Path) -> None:
    unclipped = train_one_step(batches, tmp_path, learning_rate=1)
    assert torch.equal(train_one_step(batches, tmp_path, learning_rate=1, clip_norm=100), unclipped)


def test_validation_is_in_evaluation_mode_without_gradients_and_training_is_not(batches: str, tmp_path: Path) -> None:
    Modes.passes.clear()
    fit(f"{RECIPES}:modes", dataset=batches, model=str(tmp_path), epochs=2, batch_size=50)
    epoch = [(True, True)] * 2 + [(False, False)]
    assert Modes.passes == epoch * 2


@pytest.mark.parametrize(("batch_size", "step", "saved"), [(100, 1, (1, 0)), (50, 2, (1, 0)), (50, 1, (0, 1))])
def test_sigterm_at_any_step_ends_with_the_state_that_the_error_calls_saved(
    batches: str, tmp_path: Path, batch_size: int, step: int, saved: tuple[int, int]
) -> None:
    with pytest.raises(TerminatedError, match="The state is saved"):
        fit(
            f"{RECIPES}:terminated", dataset=batches, model=str(tmp_path / "model"), epochs=3, batch_size=batch_size,
            recipe_params={"step": step}, checkpoints=str(tmp_path / "checkpoints"),
        )  # fmt: skip
    newest = Checkpoint.load(f"{list_committed(tmp_path)[0]}/{INDEX}")
    assert (newest.epoch, newest.step) == saved


def test_sigterm_ends_a_training_without_checkpoints_too(batches: str, tmp_path: Path) -> None:
    with pytest.raises(TerminatedError, match=r"after step 0\.$"):
        fit(
            f"{RECIPES}:terminated", dataset=batches, model=str(tmp_path / "model"), epochs=3, batch_size=100,
            recipe_params={"step": 1},
        )  # fmt: skip
