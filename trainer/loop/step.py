"""One step of a training: the gradients of a global batch, and the optimizer's step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from trainyard.schemas.runs.phases import Phase
from trainyard.trainer.data.loader import LocalBatch, split_batch
from trainyard.trainer.data.randomness import set_seed
from trainyard.trainer.loop.empty_batches import leave_no_trace
from trainyard.trainer.loop.evaluation import autocast, to_device
from trainyard.trainer.loop.training_state import TrainingState
from trainyard.trainer.model.losses import (
    check_is_mean,
    check_outputs,
    compute_loss,
    explain_errors,
    find_shape_warnings,
    sum_weights,
)
from trainyard.trainer.model.recipe import Batch
from trainyard.trainer.run.replicas import Replicas


class Stepper:
    """Takes the steps of a training.

    Args:
        state: The state that a step changes.
        wrapped: The network as the strategy has wrapped it.
        replicas: The replicas of the network.
    """

    def __init__(self, state: TrainingState, wrapped: nn.Module, replicas: Replicas) -> None:
        self._run, self._state, self._wrapped, self._replicas = state.run, state, wrapped, replicas
        self._device = self._run.world.device
        self._callable: nn.Module = torch.compile(wrapped) if self._run.options.compile else wrapped  # type: ignore[assignment]
        self._communicates_in_forward = self._run.strategy.sharded or any(
            isinstance(module, nn.SyncBatchNorm) for module in self._run.network.modules()
        )

    def begin_epoch(self) -> None:
        """Set the network to training mode."""
        self._callable.train()

    def take(self, batch: LocalBatch) -> None:
        """Take one optimizer step on a global batch, and add the losses of this worker's rows to those of the epoch.

        The loss is a mean over rows, or over labels by their weight, and the strategy averages over workers; so each
        micro-batch counts by its rows, or weights, x number of workers / those of the global batch.
        """
        run, updates = self._run, self._state.position.updates
        set_seed(hash((run.options.seed, updates, run.world.rank)), self._device)
        with run.phases.measure(Phase.COPY) if self._device.type == "cuda" else nullcontext():
            columns = to_device(batch.columns, self._device)
        parts = run.micro_batches
        if self._communicates_in_forward:
            parts = min(parts, math.ceil(batch.total / run.world.size))
        micro_batches = list(split_batch(columns, batch.rows, parts, self._communicates_in_forward))
        weights, total = self._weigh(micro_batches, batch.total)
        for number, ((rows, part), weight) in enumerate(zip(micro_batches, weights, strict=True), start=1):
            counts = nullcontext() if rows else leave_no_trace(self._state.network)
            with counts, run.strategy.micro_batch(last=number == len(micro_batches)):
                self._add_gradient(rows, part, weight, weight * run.world.size / total)
        self._replicas.check_trained()
        with run.phases.measure(Phase.OPTIMIZER), run.strategy.optimizer_step():
            self._step_optimizer()
        self._state.optimizer.zero_grad()

    def _add_gradient(self, rows: int, part: Batch, weight: float | Tensor, share: float | Tensor) -> None:
        """Add the gradient of a micro-batch to that of the step, and its loss to that of the epoch.

        Args:
            rows: How many rows it has; with 0 it has one that does not count.
            part: Its columns.
            weight: What it counts in the epoch.
            share: What it counts in the step.
        """
        state, phases = self._state, self._run.phases
        with phases.measure(Phase.FORWARD), autocast(self._device, self._run.options.precision):
            loss = self._compute_loss(part, self._callable if rows else self._wrapped)
        with phases.measure(Phase.BACKWARD):
            weighted = loss * share if isinstance(share, Tensor) or share != 1 else loss
            state.scaler.scale(weighted).backward()  # type: ignore[no-untyped-call]
        if rows:
            state.loss_sum += loss.detach().double() * weight
            state.loss_weight += weight

    def _step_optimizer(self) -> None:
        run, state = self._run, self._state
        if not (run.strategy.sharded or run.strategy.own_optimizer):  # random numbers change all replicas alike
            set_seed(hash((run.options.seed, state.position.updates)), self._device)
        if run.options.clip_norm:
            state.scaler.unscale_(state.optimizer)
            nn.utils.clip_grad_norm_(state.network.parameters(), run.options.clip_norm)
        state.scaler.step(state.optimizer)
        state.scaler.update()
        if state.schedule and run.recipe.schedule_by == "update":
            state.schedule.step()

    def _weigh(
        self, micro_batches: Sequence[tuple[int, Batch]], total: int
    ) -> tuple[Sequence[float | Tensor], float | Tensor]:
        """Return the weights of this worker's micro-batches, and that of the global batch of `total` rows."""
        run, rows = self._run, [rows for rows, _ in micro_batches]
        if not run.weighs_labels:
            return rows, total
        weights = [sum_weights(run.recipe, part) for _, part in micro_batches]
        known = [min(count, 1) * weight for count, weight in zip(rows, weights, strict=True) if weight is not None]
        if len(known) < len(weights):
            return rows, total
        own = torch.stack(known).sum()
        with run.phases.waiting() if run.world.size > 1 else nullcontext():
            return known, run.world.sum(own).clamp(min=torch.finfo(own.dtype).tiny)

    def _compute_loss(self, columns: Batch, model: nn.Module) -> Tensor:
        run, recipe = self._run, self._run.recipe
        with explain_errors(self._state.network, run.unread_columns):
            if recipe.step:
                loss = recipe.step(model, columns)
            else:
                output = model(columns)
                check_outputs(recipe.label or "", output, run.max_class)
                run.warnings.update(find_shape_warnings(recipe, output, columns))
                loss = compute_loss(recipe, output, columns)
        check_is_mean(loss)
        return loss
