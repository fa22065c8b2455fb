"""What changes while a model trains, and how a checkpoint keeps it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import torch
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainyard.errors import TrainyardError
from trainyard.trainer.checkpointing.checkpoints import Checkpoints, Position, SavedCheckpoint
from trainyard.trainer.checkpointing.compatibility import check_resumable
from trainyard.trainer.checkpointing.optimizer_state import initialize_state
from trainyard.trainer.checkpointing.staging import copy_tensors, get_local
from trainyard.trainer.loop.evaluation import sum_over_workers
from trainyard.trainer.loop.training import Training
from trainyard.trainer.model.losses import check_finite_loss, check_finite_weights
from trainyard.trainer.model.network import Network
from trainyard.trainer.run.history import History, find_best, get_monitor
from trainyard.trainer.strategies.base import merge_rank_states


class TrainingState:
    """The state of a training. A group of any size resumes from what `save` writes.

    Random state is not part of it: it derives from the number of the step.

    Args:
        run: What is trained.
        network: The network on its device, whose parameters may be shards.
        optimizer: Its optimizer, as the strategy has wrapped it.
        schedule: The schedule of its learning rate, if there is one.
        described: What a checkpoint depends on in the code of the recipe; see `describe_recipe`.

    Attributes:
        scaler: Scales gradients in half precision; does nothing otherwise.
        history: The metrics of the epochs that are done.
        best_weights: The weights of the best one; empty if there is none.
        position: The next step.
        loss_sum: The sums (heads,) of the losses of this worker's rows in this epoch, each by its weight.
        loss_weight: The sums of these weights.
    """

    def __init__(
        self,
        run: Training,
        network: Network,
        optimizer: Optimizer,
        schedule: LRScheduler | None,
        described: Mapping[str, str],
    ) -> None:
        self.run, self.network, self.optimizer, self.schedule = run, network, optimizer, schedule
        self._described, device = described, run.world.device
        self.scaler = torch.amp.GradScaler(device.type, enabled=run.options.precision == "float16")
        self.history = History()
        self.best_weights: dict[str, Any] = {}
        self.position = Position()
        self.loss_sum = torch.zeros(len(run.objective.heads), dtype=torch.float64, device=device)
        self.loss_weight = torch.zeros_like(self.loss_sum)
        self._saved_updates = 0

    @property
    def updates_since_save(self) -> int:
        """The steps since the last checkpoint."""
        return self.position.updates - self._saved_updates

    def keep_best(self, epoch: int) -> None:
        """Take the current weights as those of the best epoch."""
        self.history.best, self.best_weights = epoch, copy_tensors(get_model_state_dict(self.network))

    def load_best_weights(self) -> None:
        """Load the weights of the best epoch.

        Raises:
            TrainyardError: There is none, because the monitored metric was NaN in every epoch.
        """
        if not self.best_weights:
            monitor, epochs = get_monitor(self.history, self.run.options), len(self.history.epochs)
            raise TrainyardError(
                f"the metric {monitor!r}, which the best epoch is chosen by, was NaN in all {epochs} epochs. Correct "
                "the metric or the labels of the validation split, or set monitor= to another metric."
            )
        set_model_state_dict(self.network, self.best_weights)

    def save(self, checkpoints: Checkpoints) -> None:
        """Start to write a checkpoint. All workers call this, and have the same weights.

        Raises:
            TrainyardError: The training diverged since the loss was last read; the checkpoint before this one may be
                good.
        """
        run, strategy, position = self.run, self.run.strategy, self.position
        sums, weights = (
            sum_over_workers(part, run.world, run.phases) if position.step else [0.0 for _ in part]
            for part in (self.loss_sum, self.loss_weight)
        )
        check_finite_loss(sum(sums), position.epoch, position.step)
        own: dict[str, Any] = {"strategy": strategy.rank_state()}
        trained = (parameter for parameter in self.network.parameters() if parameter.requires_grad)
        check_finite_weights(map(get_local, (*trained, *own["strategy"].values())), position.epoch, position.step)
        empty_optimizer = not self.optimizer.state
        initialize_state(self.optimizer)
        model, optimizer = get_state_dict(self.network, self.optimizer)
        if empty_optimizer:
            self.optimizer.state.clear()
        state = {"model": model, "strategy": strategy.state(), "ranks": {str(run.world.rank): own}}
        (own if strategy.own_optimizer else state)["optimizer"] = optimizer
        loop = {
            "history": self.history.epochs,
            "epoch_models": self.history.models,
            "best_epoch": self.history.best,
            "monitor": self._monitor,
            "has_best": bool(self.best_weights),
            "loss_sum": sums,
            "loss_weight": weights,
            "empty_optimizer": empty_optimizer,
            "epochs": run.options.epochs,
            "recipe": self._described,
            "workers": run.world.size,
            "schedule": self.schedule.state_dict() if self.schedule else None,
            "scaler": self.scaler.state_dict(),
        }
        after_best = position.step == 0 and self.history.best == position.epoch - 1 and bool(self.best_weights)
        checkpoints.save(position, state, {"best": self.best_weights}, loop, after_best)
        self._saved_updates = position.updates

    def restore(self, saved: SavedCheckpoint) -> None:
        """Resume from a checkpoint, which a group of another size may have written.

        Raises:
            TrainyardError: The recipe or the options are others now, so that it is not the state of this training.
        """
        run, strategy, loop = self.run, self.run.strategy, saved.read_loop_state()
        check_resumable(saved.uri, loop, self._described, run.world.size, self.schedule is not None, run.options.epochs)
        self._restore_tensors(saved, has_best=loop["has_best"], empty_optimizer=loop["empty_optimizer"])
        strategy.restore(saved.read_tensors("strategy"))
        strategy.restore_rank(
            merge_rank_states(lambda rank: saved.read_tensors(f"ranks.{rank}.strategy"), saved.index.world, run.world)
        )
        if self.schedule:
            self.schedule.load_state_dict(loop["schedule"])
        if loop["scaler"]:  # empty unless the precision was float16
            self.scaler.load_state_dict(loop["scaler"])
        self.history = History(loop["history"], loop["best_epoch"], models=loop["epoch_models"])
        if loop.get("monitor", self._monitor) != self._monitor:
            self._change_monitor(saved, loop["monitor"])
        self.position, self._saved_updates = saved.position, saved.position.updates
        if run.world.is_main:
            rows = self.position.step * run.train.order.batch
            for part, saved_sums in (
                (self.loss_sum, loop["loss_sum"]),
                (self.loss_weight, loop.get("loss_weight", rows)),
            ):
                part += torch.tensor(saved_sums, dtype=part.dtype, device=part.device)

    def _restore_tensors(self, saved: SavedCheckpoint, has_best: bool, empty_optimizer: bool) -> None:
        """Restore the model, the optimizer and the best weights."""
        strategy, rank = self.run.strategy, str(self.run.world.rank % saved.index.world)
        initialize_state(self.optimizer)
        model, optimizer = get_state_dict(self.network, self.optimizer)
        state: dict[str, Any] = {"model": model}
        if has_best:
            state["best"] = copy_tensors(model)
        paths = saved.read_paths(f"ranks.{rank}.optimizer.state" if strategy.own_optimizer else "optimizer.state")
        of_parameters, groups = cast(Any, optimizer["state"]), cast(Any, optimizer["param_groups"])
        used = optimizer | {"state": {name: value for name, value in of_parameters.items() if name in paths}}
        state |= {"ranks": {rank: {"optimizer": used}}} if strategy.own_optimizer else {"optimizer": used}
        saved.load_into(state)
        set_state_dict(self.network, self.optimizer, model_state_dict=state["model"], optim_state_dict=optimizer)
        self._remove_state(() if empty_optimizer else paths, groups)
        self.best_weights = state.get("best", {})

    def _remove_state(self, used: Collection[str], groups: list[dict[str, Any]]) -> None:
        """Remove the zeros that `get_state_dict` creates as the optimizer's state of parameters without a gradient yet.

        Args:
            used: The names of the others.
            groups: The optimizer's groups, with the names of their parameters.
        """
        for group, named in zip(self.optimizer.param_groups, groups, strict=True):
            for parameter, name in zip(group["params"], named["params"], strict=True):
                if name not in used:
                    self.optimizer.state.pop(parameter, None)

    @property
    def _monitor(self) -> list[str | None]:
        return [self.run.options.monitor, self.run.options.monitor_mode]

    def _change_monitor(self, saved: SavedCheckpoint, before: list[str | None]) -> None:
        """Find the best epoch of a checkpoint by another metric than before.

        Raises:
            TrainyardError: It is one of which the checkpoint does not have the weights.
        """
        history, position = self.history, saved.position
        best = find_best(history.epochs, self.run.options)
        if best is None or (best == history.best and self.best_weights):
            return
        if position.step or best != len(history.epochs) - 1:
            now, then = (f"monitor={name!r} with monitor_mode={mode!r}" for name, mode in (self._monitor, before))
            raise TrainyardError(
                f"by {now}, epoch {best + 1} is the best, but the checkpoint {saved.uri} has the weights of epoch "
                f"{history.best + 1}, the best by {then}. Write {then}, or remove the folder "
                f"{saved.uri.rpartition('/')[0]} to start from the beginning."
            )
        self.keep_best(best)
