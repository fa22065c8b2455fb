"""An existing LightningModule as a recipe: its own training_step, optimizer and forward, in this loop.

>>> def network() -> Recipe:
...     return recipe(Net(), features="x", label="label", classes=3)

Needs no Lightning itself, so that a module of either of its packages will do. `trainer.datamodule` is the other way
about: our batches for Lightning's own Trainer.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainyard.errors import TrainyardError
from trainyard.trainer.model.recipe import Batch, Recipe

UNCALLED = (
    "setup", "configure_model", "configure_callbacks", "on_fit_start", "on_fit_end", "on_train_start", "on_train_end",
    "on_train_epoch_start", "on_train_epoch_end", "on_train_batch_start", "on_train_batch_end",
    "on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer", "on_before_backward",
    "backward", "on_after_backward", "on_before_optimizer_step", "optimizer_step", "on_before_zero_grad",
    "optimizer_zero_grad", "lr_scheduler_step", "configure_gradient_clipping",
)  # fmt: skip
"""Hooks of Lightning's that may change how a module is trained, and that this loop does not call."""


def recipe(
    module: Any,
    *,
    features: str | Sequence[str],
    label: str | None = None,
    batch: Callable[[dict[str, Tensor]], Any] | None = None,
    **fields: Any,
) -> Recipe:
    """A recipe that trains `module`, a LightningModule.

    `batch` makes of the columns what `training_step` takes: by default a tuple of the features and the label, or
    the one feature alone. `fields` are others of Recipe: normalize, transform, metrics, classes, predict. The
    loss of validation is that of training_step in evaluation mode; what is predicted is forward's output.
    Raises TrainyardError for what of the module would not be honored.
    """
    _refuse(module)
    names = (features,) if isinstance(features, str) else tuple(features)
    stepping = Stepping(module, names, batch or _tuple((*names, label) if label else names))
    learner = _Learner(module)
    _, scheduler = learner.configured()
    warnings.filterwarnings("ignore", message=r"You are trying to `self.log\(\)`")
    return Recipe(
        model=stepping, features=names, label=label, step=stepping.step, optimizer=learner.optimizer,
        schedule=learner.schedule if scheduler else None, schedule_by=_interval(module, scheduler), **fields,
    )  # fmt: skip


class Stepping(nn.Module):
    """Calls `training_step` within its own forward pass while a step is made, so that what wraps the network sees it.

    `names` are the columns that the network hands over, normalized.
    """

    def __init__(self, module: Any, names: tuple[str, ...], batch: Callable[[dict[str, Tensor]], Any]) -> None:
        super().__init__()
        self.module: Any = module
        self._names, self._batch = names, batch
        self._numbered = len(inspect.signature(module.training_step).parameters) > 1
        self._columns: Batch | None = None
        self._steps = 0

    def step(self, network: nn.Module, columns: Batch) -> Tensor:
        """The loss, by a forward pass of the `network` that this is the model of."""
        self._columns = columns
        try:
            return network(columns)  # type: ignore[no-any-return]
        finally:
            self._columns = None
            self._steps += self.training

    def forward(self, *features: Tensor) -> Tensor:
        if self._columns is None:
            return self.module(*features)  # type: ignore[no-any-return]
        given = self._batch({**self._columns, **dict(zip(self._names, features, strict=True))})
        made = self.module.training_step(given, *([self._steps] if self._numbered else []))
        loss = made["loss"] if isinstance(made, Mapping) else made
        if loss is None:
            raise TrainyardError(
                f"{_name(self.module)}.training_step returned None, which skips a batch in Lightning; return a loss."
            )
        return loss  # type: ignore[no-any-return]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Stepping:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if (first := next(self.module.parameters(), None)) is not None:
            self.module.to(first.device)  # a LightningModule's own `device` follows nothing else
        return self


class _Learner:
    """What `configure_optimizers` returns, in the two calls that a recipe is asked for it."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._scheduler: dict[str, Any] = {}

    def optimizer(self, _: Iterable[nn.Parameter]) -> Optimizer:
        optimizer, self._scheduler = self.configured()
        return optimizer

    def schedule(self, optimizer: Optimizer, times: int) -> LRScheduler:
        scheduler: LRScheduler = self._scheduler["scheduler"]
        _bind(scheduler, optimizer)
        return scheduler

    def configured(self) -> tuple[Optimizer, dict[str, Any]]:
        """The optimizer, and the scheduler's dict, which is empty without one. Raises TrainyardError."""
        try:
            found = self._module.configure_optimizers()
        except RuntimeError as error:
            if "Trainer" not in str(error):
                raise
            raise TrainyardError(
                f"{_name(self._module)}.configure_optimizers uses self.trainer, which is Lightning's own. Give the "
                "module what it needs of it, such as the number of updates, as a parameter."
            ) from error
        optimizers, schedulers = _parts(found)
        if len(optimizers) != 1 or len(schedulers) > 1:
            raise TrainyardError(
                f"{_name(self._module)}.configure_optimizers returned {len(optimizers)} optimizers and "
                f"{len(schedulers)} schedulers; this loop has one optimizer, and one scheduler at most."
            )
        made = schedulers[0] if schedulers else {}
        return optimizers[0], made if isinstance(made, dict) else {"scheduler": made}


def _parts(found: Any) -> tuple[list[Any], list[Any]]:
    """Optimizers and schedulers in what `configure_optimizers` may return."""
    if isinstance(found, dict):
        return [found["optimizer"]], [found["lr_scheduler"]] if "lr_scheduler" in found else []
    if isinstance(found, tuple | list):
        if len(found) == 2 and isinstance(found[0], list):
            return found[0], found[1] if isinstance(found[1], list) else [found[1]]
        parts = [_parts(one) for one in found]
        return [o for optimizers, _ in parts for o in optimizers], [s for _, schedulers in parts for s in schedulers]
    return ([], []) if found is None else ([found], [])


def _interval(module: nn.Module, scheduler: Mapping[str, Any]) -> Literal["update", "epoch"]:
    """How often the loop steps the scheduler. Raises TrainyardError when that is not as its dict says."""
    if isinstance(scheduler.get("scheduler"), ReduceLROnPlateau) or scheduler.get("reduce_on_plateau"):
        raise TrainyardError(
            f"{_name(module)}.configure_optimizers returned a scheduler that waits for a plateau, of which this loop "
            "does not tell it. Return one that goes by steps or epochs, or use fit's early_stopping=."
        )
    if scheduler.get("frequency", 1) != 1:
        raise TrainyardError(
            f"{_name(module)}.configure_optimizers returned frequency={scheduler['frequency']}; this loop steps a "
            "scheduler after each update or each epoch. Write frequency=1, and the factor into the scheduler."
        )
    return "update" if scheduler.get("interval") == "step" else "epoch"


def _bind(scheduler: Any, optimizer: Optimizer) -> None:
    """Let `scheduler` change the optimizer that a strategy has put in place of the one that it was made for."""
    scheduler.optimizer = optimizer
    for inner in getattr(scheduler, "_schedulers", ()):
        _bind(inner, optimizer)


def _refuse(module: Any) -> None:
    base = next((kind for kind in type(module).__mro__ if kind.__name__ == "LightningModule"), None)
    if base is None:
        raise TrainyardError(f"{_name(module)} is no LightningModule; write a trainer.recipe.Recipe for it.")
    if not module.automatic_optimization:
        raise TrainyardError(
            f"{_name(module)} sets automatic_optimization=False: it optimizes by itself, which this loop does. "
            "Return the loss from training_step, or keep Lightning's Trainer (trainer.datamodule)."
        )
    own = [name for name in UNCALLED if getattr(type(module), name, None) is not getattr(base, name, None)]
    if own:
        raise TrainyardError(
            f"{_name(module)} overrides {', '.join(own)}, which this loop does not call. Remove them, or keep "
            "Lightning's Trainer (trainer.datamodule)."
        )


def _tuple(names: tuple[str, ...]) -> Callable[[dict[str, Tensor]], Any]:
    return lambda columns: tuple(columns[name] for name in names) if len(names) > 1 else columns[names[0]]


def _name(module: nn.Module) -> str:
    return type(module).__name__
