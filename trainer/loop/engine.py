"""The training loop of one rank."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.checkpointing.checkpoints import Checkpoints, Position, Saved, copied
from trainyard.trainer.data.jagged import slice_rows
from trainyard.trainer.data.loader import Columns, Loader, LocalBatch
from trainyard.trainer.loop.control_sync import ControlSync
from trainyard.trainer.loop.history import History, _is_best
from trainyard.trainer.loop.phases import Phases
from trainyard.trainer.loop.progress import Progress
from trainyard.trainer.loop.termination import Termination
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Batch, Recipe
from trainyard.trainer.strategies.base import Strategy
from trainyard.trainer.world import World

LOSS_CHECK_STEPS = 20


class TerminatedError(TrainyardError):
    """A rank was asked to end, and the gang has saved what it could."""


@dataclass(frozen=True)
class Training:
    """What one rank's training is made of.

    Each share of a global batch is taken in `parts`, so that a gang that is smaller than it was holds no
    more rows at a time. `after_epoch` is called by all ranks.
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
    parts: int = 1
    checkpoints: Checkpoints | None = None
    after_epoch: Callable[[History], None] | None = None


def train(run: Training) -> History:
    """Train for the epochs asked for, or until early stopping; the network ends with its best weights.

    Goes on from the newest checkpoint, if there is one. Raises TrainyardError when the loss diverges, and
    TerminatedError after SIGTERM. All ranks return the same history.
    """
    torch.manual_seed(run.options.seed)
    with Termination() as termination:
        with run.phases.phase("set up"):
            engine = _Engine(run, termination)
            if run.checkpoints and run.checkpoints.newest:
                engine.restore(run.checkpoints.newest)
        while not engine.finished():
            engine.epoch()
    if run.checkpoints:
        run.checkpoints.wait()
    engine.take_best()
    return engine.history


class _Engine:
    """The state of a run, and what changes it."""

    def __init__(self, run: Training, termination: Termination) -> None:
        self.run, self._device = run, run.world.device
        self.network = run.network.to(self._device)
        parallel = run.strategy.wrap_model(self.network, run.phases.on_communication)
        self._called: nn.Module = torch.compile(parallel) if run.options.compile else parallel  # type: ignore[assignment]
        trainable = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        self._optimizer = run.strategy.wrap_optimizer(run.recipe.optimizer(trainable), run.parts)
        times = run.options.epochs * (run.train.order.steps if run.recipe.schedule_by == "update" else 1)
        self._schedule = run.recipe.schedule(self._optimizer, times) if run.recipe.schedule else None
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=run.options.precision == "float16")
        self._control_sync, self._termination = ControlSync(run.world), termination
        self._at = Position()
        self._saved_updates = 0
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        self._best_weights: dict[str, Any] = {}
        self.history = History()

    def finished(self) -> bool:
        history, options = self.history, self.run.options
        stale = len(history.epochs) - 1 - history.best
        history.stopped_early = bool(options.early_stopping and stale >= options.early_stopping)
        return history.stopped_early or self._at.epoch >= options.epochs

    def epoch(self) -> None:
        """One pass over the training split, or what is left of it; then validation, and a checkpoint."""
        run, strategy = self.run, self.run.strategy
        sent, begin = strategy.bytes_sent, self._at.step
        epoch = self._at.epoch
        speed = self._train_epoch(epoch, begin)
        strategy.synchronize()
        total = self._sum(self._loss_sum)
        self._loss_sum.zero_()
        figures = {"loss": total / run.train.order.rows, "rows_per_second": speed}
        if run.world.size > 1:
            figures["bytes_per_step"] = (strategy.bytes_sent - sent) / max(run.train.order.steps - begin, 1)
        if run.validation:
            with run.phases.phase("validate"):
                figures |= self._validate(run.validation, epoch)
        self.history.epochs.append(figures)
        if _is_best(self.history, run.options):
            self.history.best = epoch
            self._best_weights = copied(get_model_state_dict(self.network))
        self._reschedule("epoch")
        self._at = Position(self._at.updates, epoch + 1, 0)
        if run.after_epoch:
            run.after_epoch(self.history)
        self._after_epoch()
        run.progress.end_epoch(figures)

    def take_best(self) -> None:
        """Give the network the weights of its best epoch."""
        set_model_state_dict(self.network, self._best_weights)

    def restore(self, saved: Saved) -> None:
        """Go on from a checkpoint, which a gang of another size may have written."""
        run, strategy = self.run, self.run.strategy
        loop = saved.loop()
        model, optimizer = get_state_dict(self.network, self._optimizer)
        state: dict[str, Any] = {"model": model}
        if loop["history"]:
            state["best"] = copied(model)
        if strategy.own_optimizer:
            state["ranks"] = {str(run.world.rank % saved.index.world): {"optimizer": optimizer}}
        else:
            state["optimizer"] = optimizer
        saved.fill(state)
        set_state_dict(self.network, self._optimizer, model_state_dict=state["model"], optim_state_dict=optimizer)
        if loop["empty_optimizer"]:
            self._optimizer.state.clear()
        strategy.restore(saved.tensors("strategy"))
        strategy.restore_ranks([saved.tensors(f"ranks.{rank}.strategy") for rank in range(saved.index.world)])
        if self._schedule:
            self._schedule.load_state_dict(loop["schedule"])
        self._scaler.load_state_dict(loop["scaler"])
        self.history = History(loop["history"], loop["best_epoch"])
        self._best_weights = state.get("best", {})
        self._at, self._saved_updates = saved.position, saved.position.updates
        if run.world.is_main:
            self._loss_sum += loop["loss_sum"]
            print(f"going on from {saved.uri}: epoch {self._at.epoch + 1}, step {self._at.step}", flush=True)
        run.phases.note(lambda log: log.instant("resume", epoch=self._at.epoch + 1, step=self._at.step))

    def _train_epoch(self, epoch: int, begin: int) -> float:
        """Rows per second."""
        run, order = self.run, self.run.train.order
        self._called.train()
        run.progress.begin_epoch(epoch, begin)
        started, here = time.perf_counter(), run.phases.here
        here.epoch, here.step = epoch, begin
        for share in run.phases.timed(run.train.epoch(epoch, begin)):
            _seed(hash((run.options.seed, self._at.updates, run.world.rank)), self._device)
            self._update(share)
            self._at = Position(self._at.updates + 1, epoch, share.step + 1)
            run.strategy.after_step()
            if share.step % LOSS_CHECK_STEPS == 0 or share.step == order.steps - 1:
                self._check(epoch, share.step)
                run.progress.step(share.step + 1)
            self._between_steps()
            here.step = share.step + 1
        return (order.rows - begin * order.batch) / (time.perf_counter() - started)

    def _between_steps(self) -> None:
        """Save, or end, when it is time to. Only where all ranks hold the same weights."""
        run, updates, at = self.run, self._at.updates, self._at
        if not run.strategy.in_sync:
            return
        terminate, save = False, self._steps_are_due()
        if self._control_sync.due(updates):
            late = run.world.is_main and run.checkpoints and run.checkpoints.since() > 60 * run.options.checkpoint_minutes
            terminate, told = self._control_sync.sync(updates, self._termination.asked, bool(late))
            save = save or told
        if run.checkpoints and at.step < run.train.order.steps and (save or terminate):
            self._save(run.checkpoints)
        if terminate:
            self._end()

    def _after_epoch(self) -> None:
        run = self.run
        if not run.checkpoints:
            return
        self._save(run.checkpoints)
        if self._control_sync.sync(self._at.updates, self._termination.asked)[0]:
            self._end()

    def _steps_are_due(self) -> bool:
        every = self.run.options.checkpoint_steps
        return every is not None and self._at.updates - self._saved_updates >= every

    def _save(self, checkpoints: Checkpoints) -> None:
        """Begin a checkpoint: all it takes to go on in any world size. Random state derives from the step."""
        run, strategy = self.run, self.run.strategy
        with run.phases.phase("checkpoint"):
            fresh = not self._optimizer.state
            model, optimizer = get_state_dict(self.network, self._optimizer)
            if fresh:
                self._optimizer.state.clear()
            mine: dict[str, Any] = {"strategy": strategy.rank_state()}
            state = {"model": model, "best": self._best_weights, "strategy": strategy.state()}
            (mine if strategy.own_optimizer else state)["optimizer"] = optimizer
            loss = self._sum(self._loss_sum) if self._at.step else 0.0
            loop = {
                "history": self.history.epochs,
                "best_epoch": self.history.best,
                "loss_sum": loss,
                "empty_optimizer": fresh,
                "schedule": self._schedule.state_dict() if self._schedule else None,
                "scaler": self._scaler.state_dict(),
            }
            best = self._at.step == 0 and self.history.best == self._at.epoch - 1
            checkpoints.save(self._at, state | {"ranks": {str(run.world.rank): mine}}, loop, best)
            self._saved_updates = self._at.updates

    def _end(self) -> None:
        saved = ""
        if self.run.checkpoints:
            self.run.checkpoints.wait()
            saved = " The state is saved; the next try goes on from there."
        raise TerminatedError(
            f"a rank was asked to end (SIGTERM) in epoch {self._at.epoch + 1}, after step {self._at.step}.{saved}"
        )

    def _validate(self, loader: Loader, epoch: int) -> dict[str, float]:
        """Loss and the recipe's metrics over the validation split, merged over ranks."""
        recipe = self.run.recipe
        metrics = {name: metric.to(self._device) for name, metric in recipe.metrics.items()}
        loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        self.network.eval()
        with torch.no_grad(), self._autocast():
            for share in loader.epoch(epoch):
                self.run.phases.here.enter("validate")
                if share.rows == 0 and not self.run.strategy.sharded:
                    continue
                columns = self._on_device(share.columns)
                if recipe.step:
                    loss_sum += recipe.step(self.network, columns).double() * share.rows
                if not recipe.step or metrics:
                    output = self.network(columns)
                    if not recipe.step:
                        loss_sum += _loss(recipe, output, columns).double() * share.rows
                    for metric in metrics.values() if share.rows else ():
                        metric.update(output, columns[recipe.label or ""])
        figures = {"validation_loss": self._sum(loss_sum) / loader.order.rows}
        for name, metric in metrics.items():
            figures[name] = float(metric.compute())
            metric.reset()
        return figures

    def _sum(self, mine: Tensor) -> float:
        """The sum of one value over all ranks. What this rank waits for the others is a phase of its own."""
        own = mine.item()  # on a GPU it is computed only now, which is no waiting
        if self.run.world.size == 1:
            return own
        with self.run.phases.waiting():
            return self.run.world.sum(mine.clone()).item()

    def _update(self, share: LocalBatch) -> None:
        """One optimizer step on one global batch; this rank's row losses are added to the epoch's.

        The loss is a mean over rows, and the strategy averages over ranks; so each part of the
        batch counts by its rows x world size / rows of the global batch.
        """
        run, phases = self.run, self.run.phases
        with phases.phase("copy") if self._device.type == "cuda" else nullcontext():
            columns = self._on_device(share.columns)
        parts = list(_parts(columns, share.rows, run.parts))
        for number, (rows, held) in enumerate(parts, start=1):
            last = number == len(parts)
            weight = rows * run.world.size / share.total
            with run.strategy.micro_batch(self._called, last):
                with phases.phase("forward"), self._autocast():
                    loss = self._step(held)
                with phases.phase("backward"):
                    weighted = loss if weight == 1 else loss * weight
                    self._scaler.scale(weighted).backward()  # type: ignore[no-untyped-call]
            self._loss_sum.add_(loss.detach(), alpha=rows)
        with phases.phase("optimizer"), run.strategy.optimizer_step():
            if run.options.clip_norm:
                self._scaler.unscale_(self._optimizer)
                nn.utils.clip_grad_norm_(self.network.parameters(), run.options.clip_norm)
            self._scaler.step(self._optimizer)
            self._scaler.update()
            self._reschedule("update")
        self._optimizer.zero_grad()

    def _reschedule(self, after: str) -> None:
        if self._schedule and self.run.recipe.schedule_by == after:
            self._schedule.step()

    def _step(self, columns: Batch) -> Tensor:
        recipe = self.run.recipe
        return recipe.step(self._called, columns) if recipe.step else _loss(recipe, self._called(columns), columns)

    def _autocast(self) -> AbstractContextManager[None]:
        precision = self.run.options.precision
        if precision == "float32":
            return nullcontext()
        return torch.autocast(self._device.type, dtype=getattr(torch, precision))

    def _on_device(self, columns: Columns) -> Columns:
        if self._device.type == "cpu":
            return columns
        return {name: column.to(self._device, non_blocking=True) for name, column in columns.items()}

    def _check(self, epoch: int, step: int) -> None:
        if not math.isfinite(loss := self._loss_sum.item()):
            raise TrainyardError(
                f"the loss diverged: it became {loss} at epoch {epoch + 1}, by step {step + 1}. "
                "Lower the learning rate in the recipe, set clip_norm= on the operator, or normalize the features."
            )


def _loss(recipe: Recipe, output: Any, columns: Batch) -> Tensor:
    assert recipe.loss is not None and recipe.label is not None  # Recipe refuses to be made otherwise
    return recipe.loss(output, columns[recipe.label])


def _parts(columns: Columns, rows: int, count: int) -> Iterator[tuple[int, Columns]]:
    """`columns` in `count` parts at most, each with its number of rows that are to be weighted."""
    if rows <= 1 or count == 1:
        yield rows, columns
        return
    size = math.ceil(rows / count)
    for start in range(0, rows, size):
        end = min(start + size, rows)
        yield end - start, {name: slice_rows(column, start, end) for name, column in columns.items()}


def _seed(seed: int, device: torch.device) -> None:
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
