"""Runs to cut off: what several tests train, and how they look at what is left of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.trainer.workers import Workers
from trainyard.schemas import checkpoint as index
from trainyard.trainer.group.outcome import BROKEN
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.world import World

RECIPES = "tests.trainer.recipes"
EVERY: dict[str, dict[str, Any]] = {
    "allreduce": {"name": "allreduce"},
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


def losses(epochs: list[dict[str, float]]) -> list[float]:
    return [epoch[name] for epoch in epochs for name in ("loss", "validation_loss")]


def ordered(
    world: World, batches: str, folder: str, strategy: dict[str, Any], ranks: int | None, options: dict[str, Any]
) -> list[dict[str, float]]:
    """Train as the file `orders` in `folder` lets it, with checkpoints there."""
    given = {"epochs": 3, "batch_size": 48, "checkpoint_steps": 3, "recipe_params": {"orders": f"{folder}/orders"}}
    fitted = fit(
        f"{RECIPES}:ordered", dataset=batches, model=f"{folder}/model", world=world, ranks=ranks, strategy=strategy,
        checkpoints=f"{folder}/checkpoints", **given | options,
    )  # fmt: skip
    return fitted.history.epochs


def whole(folder: Path) -> list[str]:
    """The checkpoints that are there, the newest first."""
    return [uri for _, _, uri in index.list_checkpoints(str(folder / "checkpoints")) if Path(uri, index.INDEX).exists()]


def killed(folder: Path, size: int, orders: str, *arguments: Any) -> None:
    """Let a gang die as `orders` say; its other ranks end too."""
    (folder / "orders").write_text(orders)
    with Workers(size) as gang:
        outcomes = gang.begin(ordered, *arguments).outcomes()
    assert outcomes.count(None) == 1, outcomes
    assert all(any(sign in outcome for sign in BROKEN) for outcome in outcomes if outcome), outcomes
    assert whole(folder)
