"""The training loop of one rank."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainer.loader import Columns, Loader, Share
from trainer.network import Network
from trainer.phases import Phases
from trainer.recipe import Batch, Recipe
from trainer.strategies.base import Strategy
from trainer.world import World
from trainyard.contract.errors import TrainyardError
from trainyard.contract.spec import TrainOptions

REPORT_SECONDS = 5.0
LOSS_CHECK_STEPS = 20


class Checkpoints(Protocol):
    def save(self, epoch: int, state: dict[str, Any]) -> None: ...


@dataclass
class History:
    """One entry an epoch: `loss` (training), `validation_loss`, rows/s, and each metric by name."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    best: int = 0
    stopped_early: bool = False


@dataclass(frozen=True)
class Training:
    """What one rank's training is made of."""

    recipe: Recipe
    network: Network
    options: TrainOptions
    world: World
    strategy: Strategy
    train: Loader
    validation: Loader | None
    phases: Phases
    checkpoints: Checkpoints | None = None


def train(run: Training) -> History:
    """Train for the epochs asked for, or until early stopping; the network ends with its best weights.

    Raises TrainyardError when the loss diverges. All ranks return the same history.
    """
    options, world = run.options, run.world
    torch.manual_seed(options.seed)
    with run.phases.phase("set up"):
        network = run.network.to(world.device)
        parallel = run.strategy.attach(network, run.phases.communicated)
        called: nn.Module = torch.compile(parallel) if options.compile else parallel  # type: ignore[assignment]
        optimizer = run.recipe.optimizer(network.parameters())
        updates = run.train.order.steps * options.epochs
        schedule = run.recipe.schedule(optimizer, updates) if run.recipe.schedule else None
        scaler = torch.amp.GradScaler(world.device.type, enabled=options.precision == "float16")
        engine = _Engine(run, network, called, optimizer, scaler, schedule)

    history = History()
    best_weights: dict[str, Tensor] = {}
    for epoch in range(options.epochs):
        torch.manual_seed(hash((options.seed, epoch, world.rank)) % 2**63)
        figures = engine.epoch(epoch)
        if run.validation:
            with run.phases.phase("validate"):
                figures |= engine.validate(run.validation, epoch)
        history.epochs.append(figures)
        if _is_best(history, options):
            history.best = epoch
            best_weights = copy.deepcopy(network.state_dict())
        if run.checkpoints and world.leads:
            with run.phases.phase("checkpoint"):
                run.checkpoints.save(epoch + 1, engine.state(epoch + 1, history, best_weights))
        _report(run, epoch, figures)
        if options.early_stopping and epoch - history.best >= options.early_stopping:
            history.stopped_early = True
            break
    network.load_state_dict(best_weights)
    return history


class _Engine:
    def __init__(
        self,
        run: Training,
        network: Network,
        called: nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler,
        schedule: torch.optim.lr_scheduler.LRScheduler | None,
    ) -> None:
        self.run, self.network, self.called = run, network, called
        self.optimizer, self.scaler, self.schedule = optimizer, scaler, schedule
        self._device = run.world.device

    def epoch(self, epoch: int) -> dict[str, float]:
        """One pass over the training split."""
        run, order = self.run, self.run.train.order
        self.called.train()
        loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        started = reported = time.perf_counter()
        for share in run.phases.timed(run.train.epoch(epoch)):
            self._update(share, loss_sum)
            if share.step % LOSS_CHECK_STEPS == 0 or share.step == order.steps - 1:
                self._check(loss_sum, epoch, share.step)
                now = time.perf_counter()
                if run.world.leads and now - reported >= REPORT_SECONDS:
                    reported = now
                    _progress(run, epoch, share.step + 1, now - started)
        seconds = time.perf_counter() - started
        run.world.sum(loss_sum)
        return {"loss": loss_sum.item() / order.rows, "rows_per_second": order.rows / seconds}

    def validate(self, loader: Loader, epoch: int) -> dict[str, float]:
        """Loss and the recipe's metrics over the validation split, merged over ranks."""
        recipe = self.run.recipe
        metrics = {name: metric.to(self._device) for name, metric in recipe.metrics.items()}
        loss_sum = torch.zeros((), dtype=torch.float64, device=self._device)
        self.network.eval()
        with torch.no_grad(), self._autocast():
            for share in loader.epoch(epoch):
                if share.rows == 0:
                    continue
                columns = self._on_device(share.columns)
                if recipe.step:
                    loss_sum += recipe.step(self.network, columns).double() * share.rows
                if not recipe.step or metrics:
                    output = self.network(columns)
                    if not recipe.step:
                        loss_sum += _loss(recipe, output, columns).double() * share.rows
                    for metric in metrics.values():
                        metric.update(output, columns[recipe.label or ""])
        self.run.world.sum(loss_sum)
        figures = {"validation_loss": loss_sum.item() / loader.order.rows}
        for name, metric in metrics.items():
            figures[name] = float(metric.compute())
            metric.reset()
        return figures

    def state(self, epoch: int, history: History, best: dict[str, Tensor]) -> dict[str, Any]:
        """All it takes to go on after `epoch` epochs, in any world size: random state derives from it."""
        return {
            "epoch": epoch,
            "step": 0,
            "seed": self.run.options.seed,
            "model": self.network.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "schedule": self.schedule.state_dict() if self.schedule else None,
            "history": history.epochs,
            "best_epoch": history.best,
            "best": best,
        }

    def _update(self, share: Share, loss_sum: Tensor) -> None:
        """One optimizer step on one global batch; this rank's row losses are added to `loss_sum`.

        The loss is a mean over rows, and the strategy averages over ranks; so each part of the
        batch counts by its rows x world size / rows of the global batch.
        """
        run, phases = self.run, self.run.phases
        with phases.phase("copy") if self._device.type == "cuda" else nullcontext():
            columns = self._on_device(share.columns)
        parts = list(_parts(columns, share.rows, run.options.accumulate))
        for number, (rows, part) in enumerate(parts, start=1):
            last = number == len(parts)
            weight = rows * run.world.size / share.total
            with run.strategy.communicating(self.called, last):
                with phases.phase("forward"), self._autocast():
                    loss = self._step(part)
                with phases.phase("backward"):
                    weighted = loss if weight == 1 else loss * weight
                    self.scaler.scale(weighted).backward()  # type: ignore[no-untyped-call]
            loss_sum.add_(loss.detach(), alpha=rows)
        with phases.phase("optimizer"):
            if run.options.clip_norm:
                self.scaler.unscale_(self.optimizer)
                nn.utils.clip_grad_norm_(self.network.parameters(), run.options.clip_norm)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            if self.schedule:
                self.schedule.step()
            self.optimizer.zero_grad(set_to_none=True)

    def _step(self, columns: Batch) -> Tensor:
        recipe = self.run.recipe
        return recipe.step(self.called, columns) if recipe.step else _loss(recipe, self.called(columns), columns)

    def _autocast(self) -> AbstractContextManager[None]:
        precision = self.run.options.precision
        if precision == "float32":
            return nullcontext()
        return torch.autocast(self._device.type, dtype=getattr(torch, precision))

    def _on_device(self, columns: Columns) -> Columns:
        if self._device.type == "cpu":
            return columns
        return {name: column.to(self._device, non_blocking=True) for name, column in columns.items()}

    def _check(self, loss_sum: Tensor, epoch: int, step: int) -> None:
        if not math.isfinite(loss_sum.item()):
            raise TrainyardError(
                f"the loss diverged: it became {loss_sum.item()} at epoch {epoch + 1}, by step {step + 1}. "
                "Lower the learning rate in the recipe, set clip_norm= on the operator, or normalise the features."
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
        part = {name: column[start : start + size] for name, column in columns.items()}
        yield min(size, rows - start), part


def _is_best(history: History, options: TrainOptions) -> bool:
    """Whether the last epoch is the best so far, by the metric that is monitored."""
    last, best = history.epochs[-1], history.epochs[history.best]
    name = "validation_loss" if options.monitor == "loss" and "validation_loss" in last else options.monitor
    if name not in last:
        raise TrainyardError(
            f"monitor={options.monitor!r} is not among the figures of an epoch: {', '.join(sorted(last))}. "
            "Name one of them, or add it to the recipe's metrics."
        )
    better = last[name] > best[name] if options.monitor_mode == "max" else last[name] < best[name]
    return len(history.epochs) == 1 or better


def _progress(run: Training, epoch: int, step: int, seconds: float) -> None:
    order = run.train.order
    rows = min(step * order.batch, order.rows)
    left = (order.rows * (run.options.epochs - epoch) - rows) * seconds / rows
    print(
        f"epoch {epoch + 1}/{run.options.epochs} step {step}/{order.steps}: "
        f"{rows / seconds:,.0f} rows/s, {left:,.0f} s left",
        flush=True,
    )


def _report(run: Training, epoch: int, figures: dict[str, float]) -> None:
    seconds = run.phases.end_epoch()
    if not run.world.leads:
        return
    run.phases.note(lambda log: log.counter("epoch", epoch=epoch + 1, **figures))
    left = (run.options.epochs - epoch - 1) * sum(v for k, v in seconds.items() if k not in ("allreduce", "set up"))
    shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items() if name != "rows_per_second")
    speed = f"{figures['rows_per_second']:,.0f} rows/s, {left:,.0f} s left"
    print(f"epoch {epoch + 1}/{run.options.epochs}: {shown}, {speed}", flush=True)
