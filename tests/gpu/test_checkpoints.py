"""Checkpoints on the device: a training resumes with the same losses, also from one of a CPU."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gpu import group, recipes
from tests.gpu.group import Task
from trainyard.schemas.runs import checkpoint as index
from trainyard.trainer.connections.process_group import end_process_group
from trainyard.trainer.connections.rendezvous import join_group
from trainyard.trainer.loop.fit import fit

pytestmark = [pytest.mark.full, pytest.mark.slow]


def train(batches: str, folder: str, **options: Any) -> list[float]:
    """Train in `folder`, until the step in its file `fault` if there is one, and return the losses."""
    defaults = {"epochs": 3, "batch_size": 48, "checkpoint_steps": 3}
    fitted = fit(
        f"{recipes.__name__}:interrupted", dataset=batches, model=f"{folder}/model",
        checkpoints=f"{folder}/checkpoints", recipe_params={"file": f"{folder}/fault"}, **defaults | options,
    )  # fmt: skip
    return [epoch[name] for epoch in fitted.history.epochs for name in ("loss", "validation_loss")]


def interrupt(batches: str, folder: Path, **options: Any) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "fault").write_text("17")
    with pytest.raises(RuntimeError, match="interrupted"):
        train(batches, str(folder), **options)
    (folder / "fault").unlink()
    assert index.list_checkpoints(str(folder / "checkpoints"))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_an_interrupted_training_resumes_with_the_same_losses(
    device: str, batches: str, tmp_path: Path, precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the momenta, and with the scale of the loss."""
    (tmp_path / "whole").mkdir()
    expected = train(batches, str(tmp_path / "whole"), precision=precision)
    interrupt(batches, tmp_path / "resumed", precision=precision)
    assert train(batches, str(tmp_path / "resumed"), precision=precision) == pytest.approx(expected, rel=1e-4)
    assert "resuming from" in capsys.readouterr().out


def train_in_group(task: Task, batches: str, folder: str, strategy: str) -> list[float]:
    world = join_group(task, task.driver, timedelta(minutes=2), 1)
    losses = train(batches, folder, world=world, strategy=strategy, workers=2)
    end_process_group(abort=False)
    return losses


@pytest.mark.ranks
@pytest.mark.parametrize("strategy", ["allreduce", "fsdp"])
def test_a_checkpoint_of_a_group_on_cpus_is_resumed_on_the_device(
    device: str, batches: str, tmp_path: Path, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers save it; one for each GPU resumes, or one on a CPU."""
    (tmp_path / "fault").write_text("17")
    results = group.run_until_failure("cpu", 2, train_in_group, batches, str(tmp_path), strategy)
    assert any("interrupted" in str(result) for result in results), results
    (tmp_path / "fault").unlink()
    assert index.list_checkpoints(str(tmp_path / "checkpoints"))
    size = group.count_workers(device, strategy) if device == "cuda" else 1
    resumed = group.run(device, size, train_in_group, batches, str(tmp_path), strategy)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "whole").mkdir()
    expected = train(batches, str(tmp_path / "whole"))
    for losses in resumed:
        assert losses == pytest.approx(expected, rel=1e-2, abs=1e-3)
