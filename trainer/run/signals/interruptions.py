"""When a training saves a checkpoint, and when it ends before its last epoch: by time, by steps, and at SIGTERM."""

from __future__ import annotations

from typing import NoReturn

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.checkpointing.checkpoints import Checkpoints, Position
from trainyard.trainer.run.signals.control_sync import ControlSync, Termination
from trainyard.trainer.world import World


class TerminatedError(TrainyardError):
    """A worker received SIGTERM, and the group has saved its state."""


class Interruptions:
    """Decide when to save and when to end. All workers call each method after the same steps, and get the same answer.

    Args:
        options: The options of the loop.
        world: The workers.
        termination: Whether this worker has received SIGTERM.
        checkpoints: Where checkpoints are saved, if they are.
    """

    def __init__(
        self, options: TrainOptions, world: World, termination: Termination, checkpoints: Checkpoints | None
    ) -> None:
        self._options, self._world, self._checkpoints = options, world, checkpoints
        self._termination, self._control_sync = termination, ControlSync(world)

    def after_step(self, updates: int, updates_since_save: int) -> tuple[bool, bool]:
        """Return whether to save a checkpoint after a step within an epoch, and whether to end the training.

        Args:
            updates: The number of optimizer steps.
            updates_since_save: Those since the last checkpoint.
        """
        every = self._options.checkpoint_steps
        terminate, save = False, every is not None and updates_since_save >= every
        if self._control_sync.is_due(updates):
            overdue = self._world.is_main and self._is_overdue()
            terminate, save_now = self._control_sync.sync(updates, self._termination.requested, overdue)
            save = save or save_now
        return self._checkpoints is not None and (save or terminate), terminate

    def after_epoch(self, updates: int) -> bool:
        """Return whether to end the training after an epoch, whose checkpoint is saved in any case."""
        return self._control_sync.sync(updates, self._termination.requested)[0]

    def terminate(self, position: Position) -> NoReturn:
        """Wait for the last checkpoint, and end the training. Raises TerminatedError."""
        saved = ""
        if self._checkpoints:
            self._checkpoints.wait()
            error = self._checkpoints.last_error
            saved = (
                f" The state could not be saved ({error}); the next attempt resumes from the checkpoint before."
                if error
                else " The state is saved; the next attempt resumes from it."
            )
        raise TerminatedError(
            f"a worker received SIGTERM in epoch {position.epoch + 1}, after step {position.step}.{saved}"
        )

    def _is_overdue(self) -> bool:
        minutes = self._options.checkpoint_minutes
        return self._checkpoints is not None and self._checkpoints.seconds_since_save() > 60 * minutes
