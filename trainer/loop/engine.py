"""The training loop of one worker."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)

from trainyard.errors import TrainyardError
from trainyard.schemas.phases import Phase
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.checkpointing.checkpoints import Checkpoints, Position, SavedCheckpoint
from trainyard.trainer.checkpointing.compatibility import check_resumable, describe_recipe, describe_schedule
from trainyard.trainer.checkpointing.optimizer_state import initialize_state
from trainyard.trainer.checkpointing.staging import copy_tensors, get_local
from trainyard.trainer.data.loader import Loader, LocalBatch, split_batch
from trainyard.trainer.data.randomness import set_seed
from trainyard.trainer.loop.control_sync import ControlSync, Termination
from trainyard.trainer.loop.device_times import CudaStream, DeviceTimes
from trainyard.trainer.loop.empty_batches import leave_no_trace
from trainyard.trainer.loop.evaluation import autocast, evaluate, sum_over_workers, to_device
from trainyard.trainer.loop.history import History, count_epochs_since_best, find_best, get_monitor, is_best
from trainyard.trainer.loop.phases import Phases
from trainyard.trainer.loop.progress import Progress
from trainyard.trainer.loop.replicas import Replicas
from trainyard.trainer.model.losses import (
    check_finite_loss,
    check_finite_weights,
    check_is_mean,
    check_outputs,
    compute_loss,
    explain_errors,
    find_shape_warnings,
    move_loss,
    sum_weights,
)
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.optimizer import build_optimizer, build_schedule, freeze_untrained
from trainyard.trainer.model.recipe import Batch, Recipe
from trainyard.trainer.strategies.base import Strategy, merge_rank_states
from trainyard.trainer.world import World

LOSS_CHECK_STEPS = 20


class TerminatedError(TrainyardError):
    """A worker received SIGTERM, and the group has saved its state."""


@dataclass(frozen=True)
class Training:
    """What one worker trains, and how.

    Attributes:
        recipe: The recipe.
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
        weighs_labels: Whether batches count by the weights of their labels, and not by their rows.
        max_class: The largest number of a class in the dataset, for losses of classes; otherwise -1.
        after_epoch: Called by all workers after each epoch.
        unread_columns: The columns of the dataset that batches do not have.
        warnings: What may be wrong with the batches, a sentence each; filled by the loop.
    """

    recipe: Recipe
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
    weighs_labels: bool = False
    max_class: float = -1
    after_epoch: Callable[[History], None] | None = None
    unread_columns: tuple[str, ...] = ()
    warnings: set[str] = field(default_factory=set)


def train(run: Training) -> History:
    """Train for the configured epochs, or until early stopping; the network ends with the weights of its best epoch.

    Training resumes from the newest checkpoint, if there is one. All workers return the same history.

    Raises:
        TrainyardError: The loss diverged.
        TerminatedError: A worker received SIGTERM.
    """
    torch.manual_seed(run.options.seed)
    with Termination() as termination:
        with run.phases.measure(Phase.SET_UP):
            engine = _Engine(run, termination)
            if run.checkpoints and run.checkpoints.newest:
                engine.restore(run.checkpoints.newest)
        while not engine.is_finished():
            engine.run_epoch()
    if run.checkpoints:
        run.checkpoints.wait()
    engine.load_best_weights()
    return engine.history


class _Engine:
    """The state of a training, and the steps that change it."""

    def __init__(self, run: Training, termination: Termination) -> None:
        self.run, self._device = run, run.world.device
        # Workers that share a GPU reduce gradients in threads of gloo, which events cannot measure.
        if self._device.type == "cuda" and not run.world.shares_gpu:
            run.phases.device_times = DeviceTimes(CudaStream(self._device))
        self.network = run.network if run.strategy.sharded else run.network.to(self._device)
        optimizer = build_optimizer(run.recipe, self.network)
        run.warnings.update(freeze_untrained(optimizer, run.recipe.model))
        wrapped = run.strategy.wrap_model(self.network, run.phases.on_communication)
        self._wrapped = wrapped
        self._callable: nn.Module = torch.compile(wrapped) if run.options.compile else wrapped  # type: ignore[assignment]
        if run.strategy.sharded:  # its parameters are others now
            optimizer = build_optimizer(run.recipe, self.network)
        self._described = describe_recipe(run.recipe, optimizer)
        self._optimizer = run.strategy.wrap_optimizer(optimizer, run.micro_batches)
        steps = run.options.epochs * (run.train.order.steps if run.recipe.schedule_by == "update" else 1)
        self._schedule = build_schedule(run.recipe, self._optimizer, steps)
        if self._schedule:
            self._described |= describe_schedule(self._schedule, steps)
        move_loss(run.recipe.loss, self._device)
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=run.options.precision == "float16")
        self._communicates_in_forward = run.strategy.sharded or any(
            isinstance(module, nn.SyncBatchNorm) for module in run.network.modules()
        )
        self._control_sync, self._termination = ControlSync(run.world), termination
        self._replicas = Replicas(self.network, self._optimizer, run.strategy, run.world)
        self._position = Position()
        self._saved_updates = 0
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        self._loss_weight = torch.zeros_like(self._loss_sum)
        self._best_weights: dict[str, Any] = {}
        self.history = History()

    def is_finished(self) -> bool:
        history, options = self.history, self.run.options
        patience = options.early_stopping
        history.stopped_early = bool(patience and count_epochs_since_best(history, options) >= patience)
        return history.stopped_early or self._position.epoch >= options.epochs

    def run_epoch(self) -> None:
        """Train on the rest of the epoch, validate, and save a checkpoint."""
        run, strategy = self.run, self.run.strategy
        sent, begin = strategy.bytes_sent, self._position.step
        epoch = self._position.epoch
        speed = self._train_epoch(epoch, begin)
        strategy.synchronize()
        self._compare_replicas(with_buffers=True)
        loss, weight = self._sum_over_workers(self._loss_sum), self._sum_over_workers(self._loss_weight)
        self._loss_sum.zero_()
        self._loss_weight.zero_()
        metrics = {"loss": loss / (weight or 1), "rows_per_second": speed}
        if run.world.size > 1:
            metrics["bytes_per_step"] = (strategy.bytes_sent - sent) / max(run.train.order.steps - begin, 1)
        if run.validation:
            with run.phases.measure(Phase.VALIDATE):
                metrics |= evaluate(
                    run.validation, epoch, recipe=run.recipe, network=self.network, world=run.world,
                    phases=run.phases, precision=run.options.precision, sharded=strategy.sharded,
                    unread=run.unread_columns, weighs_labels=run.weighs_labels,
                )  # fmt: skip
        self.history.epochs.append(self._use_first(metrics))
        if is_best(self.history, run.options):
            self.history.best = epoch
            self._best_weights = copy_tensors(get_model_state_dict(self.network))
        self._warn_without_best()
        self._step_schedule("epoch")
        self._position = Position(self._position.updates, epoch + 1, 0)
        if run.after_epoch:
            run.after_epoch(self.history)
        if run.checkpoints:
            self._save(run.checkpoints)
        run.progress.end_epoch(metrics)
        if self._control_sync.sync(self._position.updates, self._termination.requested)[0]:
            self._terminate()

    def _warn_without_best(self) -> None:
        """Say in the first epoch already that none may be the best, which is an error after the last one."""
        run, name = self.run, get_monitor(self.history, self.run.options)
        if len(self.history.epochs) > 1 or self._best_weights:
            return
        cause = (
            "a row of the validation split may have NaN, or a label that the loss does not take, or all its labels are "
            "ignored"
            if name == "validation_loss"
            else "the metric is not defined for these rows"
        )
        text = f"{name} is NaN after epoch 1: {cause}. The training fails in the end if it is NaN in all epochs."
        run.warnings.add(text)
        if run.world.is_main:
            print(f"WARNING: {text}", flush=True)

    def load_best_weights(self) -> None:
        """Load the weights of the best epoch.

        Raises:
            TrainyardError: There is none, because the monitored metric was NaN in every epoch.
        """
        if not self._best_weights:
            monitor, epochs = get_monitor(self.history, self.run.options), len(self.history.epochs)
            raise TrainyardError(
                f"the metric {monitor!r}, which the best epoch is chosen by, was NaN in all {epochs} epochs. Correct "
                "the metric or the labels of the validation split, or set monitor= to another metric."
            )
        set_model_state_dict(self.network, self._best_weights)

    def restore(self, saved: SavedCheckpoint) -> None:
        """Resume from a checkpoint, which a group of another size may have written."""
        run, strategy = self.run, self.run.strategy
        loop = saved.read_loop_state()
        check_resumable(
            saved.uri, loop, self._described, run.world.size, self._schedule is not None, run.options.epochs
        )
        initialize_state(self._optimizer)
        model, optimizer = get_state_dict(self.network, self._optimizer)
        state: dict[str, Any] = {"model": model}
        if loop["has_best"]:
            state["best"] = copy_tensors(model)
        rank = str(run.world.rank % saved.index.world)
        paths = saved.read_paths(f"ranks.{rank}.optimizer.state" if strategy.own_optimizer else "optimizer.state")
        of_parameters, groups = cast(Any, optimizer["state"]), cast(Any, optimizer["param_groups"])
        used = optimizer | {"state": {name: value for name, value in of_parameters.items() if name in paths}}
        state |= {"ranks": {rank: {"optimizer": used}}} if strategy.own_optimizer else {"optimizer": used}
        saved.load_into(state)
        set_state_dict(self.network, self._optimizer, model_state_dict=state["model"], optim_state_dict=optimizer)
        self._remove_state(() if loop["empty_optimizer"] else paths, groups)
        strategy.restore(saved.read_tensors("strategy"))
        strategy.restore_rank(
            merge_rank_states(lambda rank: saved.read_tensors(f"ranks.{rank}.strategy"), saved.index.world, run.world)
        )
        if self._schedule:
            self._schedule.load_state_dict(loop["schedule"])
        if loop["scaler"]:  # empty unless the precision was float16
            self._scaler.load_state_dict(loop["scaler"])
        self.history = History(loop["history"], loop["best_epoch"], models=loop["epoch_models"])
        self._best_weights = state.get("best", {})
        if loop.get("monitor", self._monitor) != self._monitor:
            self._change_monitor(saved, loop["monitor"])
        self._position, self._saved_updates = saved.position, saved.position.updates
        if run.world.is_main:
            self._loss_sum += loop["loss_sum"]
            self._loss_weight += loop.get("loss_weight", self._position.step * run.train.order.batch)
            print(
                f"resuming from {saved.uri}: epoch {self._position.epoch + 1}, step {self._position.step}", flush=True
            )
        run.phases.log_event(
            lambda log: log.instant("resume", epoch=self._position.epoch + 1, step=self._position.step)
        )

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
        if best is None or (best == history.best and self._best_weights):
            return
        if position.step or best != len(history.epochs) - 1:
            now, then = (f"monitor={name!r} with monitor_mode={mode!r}" for name, mode in (self._monitor, before))
            raise TrainyardError(
                f"by {now}, epoch {best + 1} is the best, but the checkpoint {saved.uri} has the weights of epoch "
                f"{history.best + 1}, the best by {then}. Write {then}, or remove the folder "
                f"{saved.uri.rpartition('/')[0]} to start from the beginning."
            )
        history.best, self._best_weights = best, copy_tensors(get_model_state_dict(self.network))

    def _remove_state(self, used: Collection[str], groups: list[dict[str, Any]]) -> None:
        """Remove the zeros that `get_state_dict` creates as the optimizer's state of parameters without a gradient yet.

        Args:
            used: The names of the others.
            groups: The optimizer's groups, with the names of their parameters.
        """
        for group, named in zip(self._optimizer.param_groups, groups, strict=True):
            for parameter, name in zip(group["params"], named["params"], strict=True):
                if name not in used:
                    self._optimizer.state.pop(parameter, None)

    def _train_epoch(self, epoch: int, begin: int) -> float:
        """Train from step `begin` to the end of the epoch, and return rows per second."""
        run, order = self.run, self.run.train.order
        self._callable.train()
        run.progress.begin_epoch(epoch, begin)
        started, current = time.perf_counter(), run.phases.current
        current.epoch, current.step = epoch, begin
        for batch in run.phases.measure_data_wait(run.train.epoch(epoch, begin)):
            set_seed(hash((run.options.seed, self._position.updates, run.world.rank)), self._device)
            self._update(batch)
            self._position = Position(self._position.updates + 1, epoch, batch.step + 1)
            run.strategy.after_step()
            if batch.step % LOSS_CHECK_STEPS == 0 or batch.step == order.steps - 1:
                run.progress.end_step(batch.step + 1, self._read_loss(epoch, batch.step))
            self._save_or_terminate()
            current.step = batch.step + 1
        return (order.rows - begin * order.batch) / (time.perf_counter() - started)

    def _save_or_terminate(self) -> None:
        """Save a checkpoint or terminate, if either is due and all workers have the same weights.

        After the last step of an epoch `run_epoch` does so.
        """
        run, position = self.run, self._position
        if not run.strategy.in_sync or position.step == run.train.order.steps:
            return
        terminate, save = False, self._is_checkpoint_step()
        if self._control_sync.is_due(position.updates):
            minutes = run.options.checkpoint_minutes
            overdue = run.world.is_main and run.checkpoints and run.checkpoints.seconds_since_save() > 60 * minutes
            terminate, save_now = self._control_sync.sync(position.updates, self._termination.requested, bool(overdue))
            save = save or save_now
        if run.checkpoints and (save or terminate):
            self._save(run.checkpoints)
        if terminate:
            self._terminate()

    def _is_checkpoint_step(self) -> bool:
        every = self.run.options.checkpoint_steps
        return every is not None and self._position.updates - self._saved_updates >= every

    def _save(self, checkpoints: Checkpoints) -> None:
        """Start to write a checkpoint, from which a group of any size can resume.

        Random state is not saved: it derives from the number of the step.

        Raises:
            TrainyardError: The training diverged since the loss was last read; the checkpoint before this one may be
                good.
        """
        run, strategy = self.run, self.run.strategy
        with run.phases.measure(Phase.CHECKPOINT):
            step = self._position.step
            loss_sum = self._sum_over_workers(self._loss_sum) if step else 0.0
            check_finite_loss(loss_sum, self._position.epoch, step)
            if step:
                self._compare_replicas(with_buffers=False)
            own: dict[str, Any] = {"strategy": strategy.rank_state()}
            trained = (parameter for parameter in self.network.parameters() if parameter.requires_grad)
            check_finite_weights(map(get_local, (*trained, *own["strategy"].values())), self._position.epoch, step)
            empty_optimizer = not self._optimizer.state
            initialize_state(self._optimizer)
            model, optimizer = get_state_dict(self.network, self._optimizer)
            if empty_optimizer:
                self._optimizer.state.clear()
            state = {"model": model, "strategy": strategy.state(), "ranks": {str(run.world.rank): own}}
            (own if strategy.own_optimizer else state)["optimizer"] = optimizer
            loop = {
                "history": self.history.epochs,
                "epoch_models": self.history.models,
                "best_epoch": self.history.best,
                "monitor": self._monitor,
                "has_best": bool(self._best_weights),
                "loss_sum": loss_sum,
                "loss_weight": self._sum_over_workers(self._loss_weight) if step else 0.0,
                "empty_optimizer": empty_optimizer,
                "epochs": run.options.epochs,
                "recipe": self._described,
                "workers": run.world.size,
                "schedule": self._schedule.state_dict() if self._schedule else None,
                "scaler": self._scaler.state_dict(),
            }
            after_best = step == 0 and self.history.best == self._position.epoch - 1
            checkpoints.save(
                self._position, state, {"best": self._best_weights}, loop, after_best and bool(self._best_weights)
            )
            self._saved_updates = self._position.updates

    def _compare_replicas(self, with_buffers: bool) -> None:
        if self.run.world.size == 1:
            return
        with self.run.phases.waiting():
            warning = self._replicas.check(self._position, with_buffers)
        if warning:
            self.run.warnings.add(warning)

    def _terminate(self) -> None:
        saved = ""
        if self.run.checkpoints:
            self.run.checkpoints.wait()
            error = self.run.checkpoints.last_error
            saved = (
                f" The state could not be saved ({error}); the next attempt resumes from the checkpoint before."
                if error
                else " The state is saved; the next attempt resumes from it."
            )
        position = self._position
        raise TerminatedError(
            f"a worker received SIGTERM in epoch {position.epoch + 1}, after step {position.step}.{saved}"
        )

    def _update(self, batch: LocalBatch) -> None:
        """Take one optimizer step on a global batch, and add the losses of this worker's rows to those of the epoch.

        The loss is a mean over rows, or over labels by their weight, and the strategy averages over workers; so each
        micro-batch counts by its rows, or weights, x number of workers / those of the global batch.
        """
        run, phases = self.run, self.run.phases
        with phases.measure(Phase.COPY) if self._device.type == "cuda" else nullcontext():
            columns = to_device(batch.columns, self._device)
        parts = run.micro_batches
        if self._communicates_in_forward:
            parts = min(parts, math.ceil(batch.total / run.world.size))
        micro_batches = list(split_batch(columns, batch.rows, parts, self._communicates_in_forward))
        weights, total = self._weigh(micro_batches, batch.total)
        for number, ((rows, part), weight) in enumerate(zip(micro_batches, weights, strict=True), start=1):
            last = number == len(micro_batches)
            share = weight * run.world.size / total
            counts = nullcontext() if rows else leave_no_trace(self.network)
            with counts, run.strategy.micro_batch(last):
                with phases.measure(Phase.FORWARD), autocast(self._device, run.options.precision):
                    loss = self._compute_loss(part, self._callable if rows else self._wrapped)
                with phases.measure(Phase.BACKWARD):
                    weighted = loss * share if isinstance(share, Tensor) or share != 1 else loss
                    self._scaler.scale(weighted).backward()  # type: ignore[no-untyped-call]
            if rows:
                self._loss_sum += loss.detach().double() * weight
                self._loss_weight += weight
        self._replicas.check_trained()
        with phases.measure(Phase.OPTIMIZER), run.strategy.optimizer_step():
            if not (run.strategy.sharded or run.strategy.own_optimizer):  # random numbers change all replicas alike
                set_seed(hash((run.options.seed, self._position.updates)), self._device)
            if run.options.clip_norm:
                self._scaler.unscale_(self._optimizer)
                nn.utils.clip_grad_norm_(self.network.parameters(), run.options.clip_norm)
            self._scaler.step(self._optimizer)
            self._scaler.update()
            self._step_schedule("update")
        self._optimizer.zero_grad()

    def _weigh(
        self, micro_batches: Sequence[tuple[int, Batch]], total: int
    ) -> tuple[Sequence[float | Tensor], float | Tensor]:
        """Return the weights of this worker's micro-batches, and that of the global batch of `total` rows."""
        run, rows = self.run, [rows for rows, _ in micro_batches]
        if not run.weighs_labels:
            return rows, total
        weights = [sum_weights(run.recipe, part) for _, part in micro_batches]
        known = [min(count, 1) * weight for count, weight in zip(rows, weights, strict=True) if weight is not None]
        if len(known) < len(weights):
            return rows, total
        own = torch.stack(known).sum()
        with run.phases.waiting() if run.world.size > 1 else nullcontext():
            return known, run.world.sum(own).clamp(min=torch.finfo(own.dtype).tiny)

    def _step_schedule(self, after: str) -> None:
        if self._schedule and self.run.recipe.schedule_by == after:
            self._schedule.step()

    def _compute_loss(self, columns: Batch, model: nn.Module) -> Tensor:
        recipe = self.run.recipe
        with explain_errors(self.network, self.run.unread_columns):
            if recipe.step:
                loss = recipe.step(model, columns)
            else:
                output = model(columns)
                check_outputs(recipe.label or "", output, self.run.max_class)
                self.run.warnings.update(find_shape_warnings(recipe, output, columns))
                loss = compute_loss(recipe, output, columns)
        check_is_mean(loss)
        return loss

    def _sum_over_workers(self, value: Tensor) -> float:
        return sum_over_workers(value, self.run.world, self.run.phases)

    def _use_first(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the metrics of rank 0 on all workers, so that they choose the same best and last epoch."""
        if self.run.world.size == 1:
            return metrics
        with self.run.phases.waiting():
            return dict(zip(metrics, self.run.world.broadcast(list(metrics.values())), strict=True))

    def _read_loss(self, epoch: int, step: int) -> float:
        """Return the mean loss of the epoch so far, of this worker's rows. Raises TrainyardError if it diverged."""
        loss = self._loss_sum.item()
        check_finite_loss(loss, epoch, step + 1)
        return loss / (self._loss_weight.item() or 1)
