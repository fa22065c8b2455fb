"""What a checkpoint of a loop has: the tracked objects, the position, the metrics and the best weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from trainyard.errors import TrainyardError
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.checkpointing.checkpoints import Checkpoints, Position, SavedCheckpoint
from trainyard.trainer.checkpointing.staging import copy_tensors
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.run import tracked
from trainyard.trainer.run.epochs import Epochs
from trainyard.trainer.run.history import History, get_monitor
from trainyard.trainer.run.models import Model
from trainyard.trainer.run.networks import Networks
from trainyard.trainer.run.tracked import Stateful
from trainyard.trainer.world import World

BEST = "best"


class SavedRun:
    """Save a loop, and restore it on any number of workers.

    Args:
        options: The options of the loop.
        world: The workers.
        phases: The phases of this worker.
        networks: The networks of the loop.
        epochs: Its epochs.
        checkpoints: Where checkpoints are saved, if they are.

    Attributes:
        objects: The tracked objects, by name.
        position: The next step.
    """

    def __init__(
        self,
        options: TrainOptions,
        world: World,
        phases: Phases,
        networks: Networks,
        epochs: Epochs,
        checkpoints: Checkpoints | None,
    ) -> None:
        self._options, self._world, self._phases = options, world, phases
        self._networks, self._epochs, self._checkpoints = networks, epochs, checkpoints
        self.objects: dict[str, Stateful] = {}
        self.position = Position()
        self._models: dict[str, nn.Module] = {}
        self._best: dict[str, dict[str, Tensor]] = {}
        self._saved_updates = 0

    @property
    def updates_since_save(self) -> int:
        """The steps since the last checkpoint."""
        return self.position.updates - self._saved_updates

    def track(self, objects: Mapping[str, Stateful], models: Sequence[Model]) -> None:
        """Track objects, and restore them from the newest checkpoint, if there is one."""
        built = {id(model.network) for model in models}
        self.objects = dict(objects)
        self._models = {n: v for n, v in objects.items() if isinstance(v, nn.Module) and id(v) in built}
        if self._checkpoints and self._checkpoints.newest:
            self._restore(self._checkpoints.newest)

    def check_tracked(self, models: Sequence[Model]) -> None:
        """Check that models, networks that are trained, and the scaler of float16 are tracked.

        Raises:
            TrainyardError: One is not.
        """
        for model in models:
            if not any(value is model.network for value in self.objects.values()):
                raise TrainyardError(
                    f"the network of run.model({model.path!r}) is not tracked, so that its weights of the best epoch "
                    "would not be known. Name it in run.track(), by itself and not as a part of another network."
                )
        known = {
            id(module) for value in self.objects.values() if isinstance(value, nn.Module) for module in value.modules()
        }
        for network in self._networks.list_trained():
            if id(network) not in known:
                raise TrainyardError(
                    f"a network of class {type(network).__name__} is trained, but not tracked, so that a checkpoint "
                    "would not have it. Name networks, optimizers and schedules in one call of run.track(), before "
                    "run.steps(); one that is only used is frozen by requires_grad_(False)."
                )
        if self._options.precision == "float16" and not any(
            isinstance(value, torch.amp.GradScaler) for value in self.objects.values()
        ):
            raise TrainyardError(
                "precision='float16', but no torch.amp.GradScaler is tracked, so that small gradients would become 0. "
                "Track one, and call batch.backward(scaler.scale(loss)), scaler.step(optimizer) and scaler.update(); "
                "or write precision='bfloat16'."
            )

    def keep_best(self) -> None:
        """Take the current weights of all models as those of the best epoch."""
        self._best = {name: copy_tensors(dict(network.state_dict())) for name, network in self._models.items()}

    def load_best(self, network: nn.Module) -> None:
        """Load the weights of the best epoch into a model.

        Raises:
            TrainyardError: There is none, because the monitored metric was NaN in every epoch.
        """
        name = next(name for name, model in self._models.items() if model is network)
        history = self._epochs.history
        if not history.epochs:
            return
        if not self._best:
            monitor = get_monitor(history, self._options)
            raise TrainyardError(
                f"the metric {monitor!r}, which the best epoch is chosen by, was NaN in all {len(history.epochs)} "
                "epochs. Correct the metric, or set monitor= to another one."
            )
        network.load_state_dict(self._best[name])

    def save(self) -> None:
        """Start to write a checkpoint. All workers call this.

        Raises:
            TrainyardError: The training diverged, or the workers do not have the same weights.
        """
        checkpoints = self._checkpoints
        if checkpoints is None:
            return
        position, history = self.position, self._epochs.history
        with self._phases.measure(Phase.CHECKPOINT):
            if position.step:
                self._networks.check(position, with_buffers=False)
            self._networks.check_finite(position)
            metrics = self._epochs.metrics.read_state()
            tensors, states = tracked.read_states(self.objects)
            tracked.check_equal(self.objects, tensors, self._world)
            loop = {
                "tracked": states, "metrics": metrics, "history": history.epochs, "best_epoch": history.best,
                "stopped_early": history.stopped_early,
            }  # fmt: skip
            is_best = position.step == 0 and history.best == position.epoch - 1 and bool(self._best)
            checkpoints.save(position, {tracked.PREFIX: tensors}, {BEST: self._best}, loop, is_best)
        self._saved_updates = position.updates

    def _restore(self, saved: SavedCheckpoint) -> None:
        loop = saved.read_loop_state()
        tracked.restore(self.objects, saved, loop["tracked"])
        models = self._models.items() if loop["history"] else ()
        self._best = {name: saved.read_tensors(f"{BEST}.{name}", model.state_dict()) for name, model in models}
        self._best = self._best if all(self._best.values()) else {}
        self._epochs.history = History(loop["history"], loop["best_epoch"], loop["stopped_early"])
        self._epochs.metrics.restore(loop["metrics"])
        self.position, self._saved_updates = saved.position, saved.position.updates
        epoch, step = self.position.epoch + 1, self.position.step
        if self._world.is_main:
            print(f"resuming from {saved.uri}: epoch {epoch}, step {step}", flush=True)
        self._phases.log_event(lambda log: log.instant("resume", epoch=epoch, step=step))
