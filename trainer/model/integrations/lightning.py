"""Train an existing LightningModule with this loop: its own training_step, optimizer and forward, as a recipe.

>>> def network() -> Recipe:
...     return from_lightning(Net(), features="x", label="label", classes=3)

Lightning is not imported here, so a module of either of its packages works. For the opposite, a dataset for Lightning's
own Trainer, see `trainyard.trainer.model.integrations.datamodule`.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainyard.errors import TrainyardError
from trainyard.trainer.model.recipe import Batch, Recipe

UNSUPPORTED_HOOKS = (
    "setup", "configure_model", "configure_callbacks", "on_fit_start", "on_fit_end", "on_train_start", "on_train_end",
    "on_train_epoch_start", "on_train_epoch_end", "on_train_batch_start", "on_train_batch_end",
    "on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer", "on_before_backward",
    "backward", "on_after_backward", "on_before_optimizer_step", "optimizer_step", "on_before_zero_grad",
    "optimizer_zero_grad", "lr_scheduler_step", "configure_gradient_clipping",
)  # fmt: skip
"""Hooks of Lightning that may change the training of a module, and that this loop does not call."""


def from_lightning(
    module: Any,
    *,
    features: str | Sequence[str],
    label: str | None = None,
    batch: Callable[[dict[str, Tensor]], Any] | None = None,
    **fields: Any,
) -> Recipe:
    """Return a recipe that trains a LightningModule.

    The validation loss is that of training_step in evaluation mode; a prediction is made from forward's output.

    Args:
        module: The LightningModule.
        features: The feature columns.
        label: The label column.
        batch: A function from the columns to the batch that `training_step` takes: by default a tuple of the arguments
            of forward and the label, or the only argument. A padded column is two arguments, values and mask.
        fields: Further fields of Recipe: normalize, transform, metrics, classes, predict.

    Raises:
        TrainyardError: The module uses something that this loop does not support.
    """
    _check_supported(module)
    if isinstance(features, Mapping):
        raise TrainyardError("from_lightning: features= is a dict; write the columns in the order of forward's.")
    names = (features,) if isinstance(features, str) else tuple(features)
    model = TrainingStepModule(module, label, batch)
    optimizers = _ConfiguredOptimizers(module)
    _, scheduler = optimizers.configure()
    warnings.filterwarnings("ignore", message=r"You are trying to `self.log\(\)`")
    return Recipe(
        model=model, features=names, label=label, step=model.compute_loss, optimizer=optimizers.build_optimizer,
        schedule=optimizers.get_scheduler if scheduler else None, schedule_by=_get_interval(module, scheduler),
        **fields,
    )  # fmt: skip


class TrainingStepModule(nn.Module):
    """Call `training_step` within the forward pass, so that DDP, FSDP and torch.compile wrap it.

    Args:
        module: The LightningModule.
        label: The label column.
        build_batch: A function from the columns to the batch that `training_step` takes; None for a tuple of the
            arguments of forward and the label.
    """

    def __init__(self, module: Any, label: str | None, build_batch: Callable[[dict[str, Tensor]], Any] | None) -> None:
        super().__init__()
        self.module: Any = module
        self.module.print = _print_on_rank_0  # Lightning's needs its Trainer
        self._label, self._build_batch = label, build_batch
        self._takes_batch_index = len(inspect.signature(module.training_step).parameters) > 1
        self._steps = 0

    def compute_loss(self, network: nn.Module, columns: Batch) -> Tensor:
        """Return the loss of a batch: the forward pass of the `network` whose model this is."""
        try:
            return network(columns, step=self._steps)  # type: ignore[no-any-return]
        finally:
            self._steps += self.training

    def forward(self, *features: Tensor, batch: Batch | None = None, step: int = 0) -> Tensor:
        """Return the output of forward, or, with a `batch`, the loss of training_step.

        The number of the step is an argument, because torch.compile would compile for each value of an attribute.
        """
        if batch is None:
            return self.module(*features)  # type: ignore[no-any-return]
        step_batch = self._build_batch(dict(batch)) if self._build_batch else self._build_tuple(features, batch)
        try:
            result = self.module.training_step(step_batch, *([step] if self._takes_batch_index else []))
        except (RuntimeError, AttributeError) as error:
            if "Trainer" not in str(error) and getattr(error, "name", "") != "experiment":
                raise
            raise TrainyardError(
                f"{_get_name(self.module)}.training_step uses a part of Lightning's Trainer: {error} Remove that, such "
                "as self.trainer, self.optimizers() and self.logger.experiment, or use Lightning's Trainer "
                "(trainyard.trainer.model.integrations.datamodule)."
            ) from error
        loss = result["loss"] if isinstance(result, Mapping) else result
        if loss is None:
            raise TrainyardError(
                f"{_get_name(self.module)}.training_step returned None, which skips a batch in Lightning but is not "
                "supported here; return a loss."
            )
        return loss  # type: ignore[no-any-return]

    def _build_tuple(self, features: tuple[Tensor, ...], batch: Batch) -> Any:
        values = (*features, batch[self._label]) if self._label else features
        return values if len(values) > 1 else values[0]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> TrainingStepModule:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if (first := next(self.module.parameters(), None)) is not None:
            self.module.to(first.device)  # updates the LightningModule's own `device`
        return self


class _ConfiguredOptimizers:
    """The results of `configure_optimizers`, for the two functions of a recipe."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._scheduler: dict[str, Any] = {}

    def build_optimizer(self, _: Iterable[nn.Parameter]) -> Optimizer:
        optimizer, self._scheduler = self.configure()
        return optimizer

    def get_scheduler(self, optimizer: Optimizer, steps: int) -> LRScheduler:
        scheduler: LRScheduler = self._scheduler["scheduler"]
        _set_optimizer(scheduler, optimizer)
        return scheduler

    def configure(self) -> tuple[Optimizer, dict[str, Any]]:
        """Return the optimizer, and the dict of the scheduler, which is empty if there is none."""
        try:
            configured = self._module.configure_optimizers()
        except RuntimeError as error:
            if "Trainer" not in str(error):
                raise
            raise TrainyardError(
                f"{_get_name(self._module)}.configure_optimizers uses self.trainer, which exists in Lightning's "
                "Trainer only. Pass what the module needs from it, such as the number of updates, as a parameter."
            ) from error
        optimizers, schedulers = _split_optimizers(configured)
        if len(optimizers) != 1 or len(schedulers) > 1:
            raise TrainyardError(
                f"{_get_name(self._module)}.configure_optimizers returned {len(optimizers)} optimizers and "
                f"{len(schedulers)} schedulers; return one optimizer, and at most one scheduler."
            )
        scheduler = schedulers[0] if schedulers else {}
        return optimizers[0], scheduler if isinstance(scheduler, dict) else {"scheduler": scheduler}


def _split_optimizers(configured: Any) -> tuple[list[Any], list[Any]]:
    """Return the optimizers and schedulers in any of the forms that `configure_optimizers` may return."""
    if isinstance(configured, dict):
        return [configured["optimizer"]], [configured["lr_scheduler"]] if "lr_scheduler" in configured else []
    if isinstance(configured, tuple | list):
        if len(configured) == 2 and isinstance(configured[0], list):
            return configured[0], configured[1] if isinstance(configured[1], list) else [configured[1]]
        parts = [_split_optimizers(part) for part in configured]
        return [o for optimizers, _ in parts for o in optimizers], [s for _, schedulers in parts for s in schedulers]
    return ([], []) if configured is None else ([configured], [])


def _get_interval(module: nn.Module, scheduler: Mapping[str, Any]) -> Literal["update", "epoch"]:
    """Return when the loop steps the scheduler."""
    if isinstance(scheduler.get("scheduler"), ReduceLROnPlateau) or scheduler.get("reduce_on_plateau"):
        raise TrainyardError(
            f"{_get_name(module)}.configure_optimizers returned ReduceLROnPlateau, which is not supported: this loop "
            "passes no metric to a scheduler. Return a scheduler of steps or epochs, or use early_stopping= of fit."
        )
    if scheduler.get("frequency", 1) != 1:
        raise TrainyardError(
            f"{_get_name(module)}.configure_optimizers returned frequency={scheduler['frequency']}, but this "
            "loop steps a scheduler after each update or each epoch. Write frequency=1, and change the scheduler "
            "accordingly."
        )
    return "update" if scheduler.get("interval") == "step" else "epoch"


def _set_optimizer(scheduler: Any, optimizer: Optimizer) -> None:
    """Make `scheduler` change the optimizer that a strategy uses instead of the module's."""
    scheduler.optimizer = optimizer
    for inner in getattr(scheduler, "_schedulers", ()):
        _set_optimizer(inner, optimizer)


def _check_supported(module: Any) -> None:
    base = next((kind for kind in type(module).__mro__ if kind.__name__ == "LightningModule"), None)
    if base is None:
        raise TrainyardError(
            f"{_get_name(module)} is not a LightningModule; write a trainyard.trainer.Recipe for it instead."
        )
    if not module.automatic_optimization:
        raise TrainyardError(
            f"{_get_name(module)} sets automatic_optimization=False, but this loop calls the optimizer itself. "
            "Return the loss from training_step, or use trainyard.trainer.TrainyardDataModule with its Trainer."
        )
    overridden = [
        name for name in UNSUPPORTED_HOOKS if getattr(type(module), name, None) is not getattr(base, name, None)
    ]
    if overridden:
        raise TrainyardError(
            f"{_get_name(module)} overrides {', '.join(overridden)}, which this loop does not call. Remove them, or "
            "use trainyard.trainer.TrainyardDataModule with its Trainer."
        )


def _print_on_rank_0(*values: Any, **options: Any) -> None:
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(*values, **options)


def _get_name(module: nn.Module) -> str:
    return type(module).__name__
