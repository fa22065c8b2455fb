"""What one worker trains, and how: the input of the training loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.checkpointing.checkpoints import Checkpoints
from trainyard.trainer.data.loader import Loader
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.measuring.progress import Progress
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.objective import Objective
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.run.history import History
from trainyard.trainer.strategies.base import Strategy
from trainyard.trainer.world import World


@dataclass(frozen=True)
class Training:
    """What one worker trains, and how.

    Attributes:
        objective: What is minimized: the losses of the recipe's heads.
        network: The recipe's model behind the normalization.
        options: The options of the loop.
        world: The workers.
        strategy: The distributed strategy.
        train: The training split.
        validation: The validation split, if there is one.
        phases: Measures the phases of the loop.
        progress: Reports the progress.
        micro_batches: How many parts a local batch is processed in. A group that is smaller than it was has more, so
            that each part has at most as many rows.
        checkpoints: Where checkpoints are saved, if they are.
        after_epoch: Called by all workers after each epoch.
        unread_columns: The columns of the dataset that batches do not have.
        warnings: What may be wrong with the batches, a sentence each; filled by the loop.
        optimizers: The optimizer and the schedule, as texts; filled by the loop.
    """

    objective: Objective
    network: Network
    options: TrainOptions
    world: World
    strategy: Strategy[Any]
    train: Loader
    validation: Loader | None
    phases: Phases
    progress: Progress
    micro_batches: int = 1
    checkpoints: Checkpoints | None = None
    after_epoch: Callable[[History], None] | None = None
    unread_columns: tuple[str, ...] = ()
    warnings: set[str] = field(default_factory=set)
    optimizers: list[str] = field(default_factory=list)

    @property
    def recipe(self) -> Recipe:
        """The recipe."""
        return self.objective.recipe
