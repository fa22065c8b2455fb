"""The training loop of one worker."""

from __future__ import annotations

import time

import torch

from trainyard.schemas.heads import split_metric
from trainyard.schemas.runs.phases import Phase
from trainyard.trainer.checkpointing.checkpoints import Checkpoints, Position, SavedCheckpoint
from trainyard.trainer.checkpointing.compatibility import describe_recipe, describe_schedule
from trainyard.trainer.loop.evaluation import evaluate, sum_over_workers
from trainyard.trainer.loop.step import Stepper
from trainyard.trainer.loop.training import Training
from trainyard.trainer.loop.training_state import TrainingState
from trainyard.trainer.measuring.device_times import CudaStream, DeviceTimes
from trainyard.trainer.model.losses import check_finite_loss, move_loss
from trainyard.trainer.model.optimizer import build_optimizer, build_schedule, describe_optimizer, freeze_untrained
from trainyard.trainer.run.history import History, count_epochs_since_best, get_monitor, is_best
from trainyard.trainer.run.replicas import Replicas
from trainyard.trainer.run.signals.control_sync import Termination
from trainyard.trainer.run.signals.interruptions import Interruptions

LOSS_CHECK_STEPS = 20


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
                engine.resume(run.checkpoints.newest)
        while not engine.is_finished():
            engine.run_epoch()
    if run.checkpoints:
        run.checkpoints.wait()
    engine.state.load_best_weights()
    return engine.state.history


class _Engine:
    """The epochs of a training."""

    def __init__(self, run: Training, termination: Termination) -> None:
        self.run, device = run, run.world.device
        # Workers that share a GPU reduce gradients in threads of gloo, which events cannot measure.
        if device.type == "cuda" and not run.world.shares_gpu:
            run.phases.device_times = DeviceTimes(CudaStream(device))
        network = run.network if run.strategy.sharded else run.network.to(device)
        optimizer = build_optimizer(run.recipe, network)
        run.warnings.update(freeze_untrained(optimizer, run.recipe.model))
        wrapped = run.strategy.wrap_model(network, run.phases.on_communication)
        if run.strategy.sharded:  # its parameters are others now
            optimizer = build_optimizer(run.recipe, network)
        described = describe_recipe(run.recipe, optimizer)
        run.optimizers.append(describe_optimizer(optimizer))
        optimizer = run.strategy.wrap_optimizer(optimizer, run.micro_batches)
        steps = run.options.epochs * (run.train.order.steps if run.recipe.schedule_by == "update" else 1)
        schedule = build_schedule(run.recipe, optimizer, steps)
        if schedule:
            described |= describe_schedule(schedule, steps)
            run.optimizers.append(type(schedule).__name__)
        for head in run.recipe.heads_by_name.values():
            move_loss(head.loss, device)
        self.state = TrainingState(run, network, optimizer, schedule, described)
        self._replicas = Replicas(network, [] if run.strategy.own_optimizer else [optimizer], run.world)
        self._stepper = Stepper(self.state, wrapped, self._replicas)
        self._interruptions = Interruptions(run.options, run.world, termination, run.checkpoints)

    def resume(self, saved: SavedCheckpoint) -> None:
        """Resume from a checkpoint."""
        self.state.restore(saved)
        epoch, step = self.state.position.epoch + 1, self.state.position.step
        if self.run.world.is_main:
            print(f"resuming from {saved.uri}: epoch {epoch}, step {step}", flush=True)
        self.run.phases.log_event(lambda log: log.instant("resume", epoch=epoch, step=step))

    def is_finished(self) -> bool:
        history, options = self.state.history, self.run.options
        patience = options.early_stopping
        history.stopped_early = bool(patience and count_epochs_since_best(history, options) >= patience)
        return history.stopped_early or self.state.position.epoch >= options.epochs

    def run_epoch(self) -> None:
        """Train on the rest of the epoch, validate, and save a checkpoint."""
        run, state, epoch = self.run, self.state, self.state.position.epoch
        metrics = self._train_epoch(epoch, state.position.step)
        if run.validation:
            with run.phases.measure(Phase.VALIDATE):
                metrics |= evaluate(
                    run.validation, epoch, objective=run.objective, network=state.network, world=run.world,
                    phases=run.phases, precision=run.options.precision, sharded=run.strategy.sharded,
                    unread=run.unread_columns,
                )  # fmt: skip
        state.history.epochs.append(self._use_first(metrics))
        if is_best(state.history, run.options):
            state.keep_best(epoch)
        self._warn_without_best()
        if state.schedule and run.recipe.schedule_by == "epoch":
            state.schedule.step()
        state.position = Position(state.position.updates, epoch + 1, 0)
        if run.after_epoch:
            run.after_epoch(state.history)
        if run.checkpoints:
            self._save(run.checkpoints)
        run.progress.end_epoch(metrics)
        if self._interruptions.after_epoch(state.position.updates):
            self._interruptions.terminate(state.position)

    def _train_epoch(self, epoch: int, begin: int) -> dict[str, float]:
        """Train from step `begin` to the end of the epoch, and return the mean loss, the speed and the bytes sent."""
        run, state, order = self.run, self.state, self.run.train.order
        self._stepper.begin_epoch()
        run.progress.begin_epoch(epoch, begin)
        sent, started, current = run.strategy.bytes_sent, time.perf_counter(), run.phases.current
        current.epoch, current.step = epoch, begin
        for batch in run.phases.measure_data_wait(run.train.epoch(epoch, begin)):
            self._stepper.take(batch)
            state.position = Position(state.position.updates + 1, epoch, batch.step + 1)
            run.strategy.after_step()
            if batch.step % LOSS_CHECK_STEPS == 0 or batch.step == order.steps - 1:
                run.progress.end_step(batch.step + 1, self._read_loss(epoch, batch.step))
            self._save_or_terminate()
            current.step = batch.step + 1
        speed = (order.rows - begin * order.batch) / (time.perf_counter() - started)
        run.strategy.synchronize()
        self._compare_replicas(with_buffers=True)
        sums, weights = (sum_over_workers(part, run.world, run.phases) for part in (state.loss_sum, state.loss_weight))
        state.loss_sum.zero_()
        state.loss_weight.zero_()
        metrics = run.objective.name_losses("loss", sums, weights) | {"rows_per_second": speed}
        if run.world.size > 1:
            metrics["bytes_per_step"] = (run.strategy.bytes_sent - sent) / max(order.steps - begin, 1)
        return metrics

    def _read_loss(self, epoch: int, step: int) -> float:
        """Return the mean loss of the epoch so far, of this worker's rows. Raises TrainyardError if it diverged."""
        sums, weights = self.state.loss_sum.tolist(), self.state.loss_weight.tolist()
        check_finite_loss(sum(sums), epoch, step + 1)
        return self.run.objective.name_losses("loss", sums, weights)["loss"]

    def _use_first(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the metrics of rank 0 on all workers, so that they choose the same best and last epoch."""
        if self.run.world.size == 1:
            return metrics
        with self.run.phases.waiting():
            return dict(zip(metrics, self.run.world.broadcast(list(metrics.values())), strict=True))

    def _warn_without_best(self) -> None:
        """Say in the first epoch already that none may be the best, which is an error after the last one."""
        run, history = self.run, self.state.history
        name = get_monitor(history, run.options)
        if len(history.epochs) > 1 or self.state.best_weights:
            return
        cause = (
            "a row of the validation split may have NaN, or a label that the loss does not take, or all its labels are "
            "ignored"
            if split_metric(name)[1] == "validation_loss"
            else "the metric is not defined for these rows"
        )
        text = f"{name} is NaN after epoch 1: {cause}. The training fails in the end if it is NaN in all epochs."
        run.warnings.add(text)
        if run.world.is_main:
            print(f"WARNING: {text}", flush=True)

    def _save_or_terminate(self) -> None:
        """Save a checkpoint or terminate, if either is due and all workers have the same weights.

        After the last step of an epoch `run_epoch` does so.
        """
        run, position = self.run, self.state.position
        if not run.strategy.in_sync or position.step == run.train.order.steps:
            return
        save, terminate = self._interruptions.after_step(position.updates, self.state.updates_since_save)
        if save and run.checkpoints:
            self._save(run.checkpoints)
        if terminate:
            self._interruptions.terminate(position)

    def _save(self, checkpoints: Checkpoints) -> None:
        with self.run.phases.measure(Phase.CHECKPOINT):
            if self.state.position.step:
                self._compare_replicas(with_buffers=False)
            self.state.save(checkpoints)

    def _compare_replicas(self, with_buffers: bool) -> None:
        if self.run.world.size == 1:
            return
        with self.run.phases.waiting():
            warning = self._replicas.check(self.state.position, with_buffers)
        if warning:
            self.run.warnings.add(warning)
