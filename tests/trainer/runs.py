"""Trainings with faults, and their checkpoints, for several tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.trainer.workers import Workers
from trainyard.schemas.runs import checkpoint as index
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.world import World

RECIPES = "tests.trainer.recipes"
DISCONNECTED = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "HorovodInternalError")
STRATEGIES: dict[str, dict[str, Any]] = {
    "allreduce": {"name": "allreduce"},
    "finding unused": {"name": "allreduce", "find_unused_parameters": True},
    "fp16": {"name": "allreduce", "compression": "fp16"},
    "bf16": {"name": "allreduce", "compression": "bf16"},
    "powersgd": {"name": "allreduce", "compression": "powersgd", "powersgd_start": 2},
    "averaging": {"name": "averaging"},
    "resetting": {"name": "averaging", "optimizer_state": "reset"},
    "threshold": {"name": "threshold", "density": 0.02},
    "diloco": {"name": "diloco", "inner_steps": 4},
    "fsdp": {"name": "fsdp"},
    "horovod": {"name": "horovod"},
    "horovod fp16": {"name": "horovod", "compression": "fp16"},
}


def get_losses(epochs: list[dict[str, float]]) -> list[float]:
    return [epoch[name] for epoch in epochs for name in ("loss", "validation_loss")]


def train_with_fault(
    world: World, batches: str, folder: str, strategy: dict[str, Any], workers: int | None, options: dict[str, Any]
) -> list[dict[str, float]]:
    """Train with checkpoints in `folder`, and with the fault that the file `fault` there describes."""
    defaults = {"epochs": 3, "batch_size": 48, "checkpoint_steps": 3, "recipe_params": {"fault": f"{folder}/fault"}}
    fitted = fit(
        f"{RECIPES}:faulty", dataset=batches, model=f"{folder}/model", world=world, workers=workers, strategy=strategy,
        checkpoints=f"{folder}/checkpoints", **defaults | options,
    )  # fmt: skip
    return fitted.history.epochs


def list_committed(folder: Path) -> list[str]:
    """Return the committed checkpoints, the newest first."""
    return [uri for _, _, uri in index.list_checkpoints(str(folder / "checkpoints")) if Path(uri, index.INDEX).exists()]


def train_until_killed(folder: Path, size: int, fault: str, *arguments: Any) -> None:
    """Train until the fault kills a worker; the other workers end too."""
    (folder / "fault").write_text(fault)
    with Workers(size) as workers:
        outcomes = workers.start(train_with_fault, *arguments).outcomes()
    assert outcomes.count(None) == 1, outcomes
    assert all(any(text in outcome for text in DISCONNECTED) for outcome in outcomes if outcome), outcomes
    assert list_committed(folder)
