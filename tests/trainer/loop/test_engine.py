"""The steps of the training loop: gradients are clipped, validation changes nothing, and options may change."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from tests.trainer import datasets
from tests.trainer.recipes import Modes, linear
from tests.trainer.runs import get_losses, list_committed
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.schemas.runs.checkpoint import INDEX, Checkpoint
from trainyard.trainer.checkpointing.checkpoints import SavedCheckpoint
from trainyard.trainer.loop.fit import FitResult, fit
from trainyard.trainer.measuring.tracking import Tracker
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.run.signals.interruptions import TerminatedError
from trainyard.trainer.world import World

RECIPES = "tests.trainer.recipes"


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("data") / "dataset"
    return datasets.write(directory, {"train": datasets.blobs(100), "validation": datasets.blobs(40, seed=1)})


def train_one_step(batches: str, model: Path, learning_rate: float, clip_norm: float | None = None) -> Tensor:
    """Return all weights after one step on the whole split."""
    fit(
        f"{RECIPES}:linear", dataset=batches, model=str(model), epochs=1, batch_size=100, clip_norm=clip_norm,
        recipe_params={"learning_rate": learning_rate},
    )  # fmt: skip
    return torch.cat([weight.flatten() for weight in load_model(str(model)).recipe.model.state_dict().values()]).cpu()


def test_clip_norm_scales_the_gradient_to_this_norm(batches: str, tmp_path: Path) -> None:
    start = train_one_step(batches, tmp_path, learning_rate=0)
    gradient = start - train_one_step(batches, tmp_path, learning_rate=1)
    clipped = start - train_one_step(batches, tmp_path, learning_rate=1, clip_norm=0.25)
    assert gradient.norm() > 0.3
    assert clipped.numpy() == pytest.approx((gradient * 0.25 / gradient.norm()).numpy(), rel=1e-3, abs=1e-6)


def test_a_gradient_below_clip_norm_is_not_changed(batches: str, tmp_path: Path) -> None:
    unclipped = train_one_step(batches, tmp_path, learning_rate=1)
    assert torch.equal(train_one_step(batches, tmp_path, learning_rate=1, clip_norm=100), unclipped)


def test_validation_is_in_evaluation_mode_without_gradients_and_training_is_not(batches: str, tmp_path: Path) -> None:
    Modes.passes.clear()
    fit(f"{RECIPES}:modes", dataset=batches, model=str(tmp_path), epochs=2, batch_size=50)
    epoch = [(True, True)] * 2 + [(False, False)]
    check = [(False, False)] * 2
    assert Modes.passes[: len(check)] == check
    assert Modes.passes[len(check) :][: 2 * len(epoch)] == epoch * 2


@pytest.mark.parametrize(("batch_size", "step", "saved"), [(100, 1, (1, 0)), (50, 2, (1, 0)), (50, 1, (0, 1))])
def test_sigterm_at_any_step_ends_with_the_state_that_the_error_calls_saved(
    batches: str, tmp_path: Path, batch_size: int, step: int, saved: tuple[int, int]
) -> None:
    with pytest.raises(TerminatedError, match="The state is saved"):
        fit(
            f"{RECIPES}:terminated", dataset=batches, model=str(tmp_path / "model"), epochs=3, batch_size=batch_size,
            recipe_params={"step": step}, checkpoints=str(tmp_path / "checkpoints"),
        )  # fmt: skip
    newest = Checkpoint.load(f"{list_committed(tmp_path)[0]}/{INDEX}")
    assert (newest.epoch, newest.step) == saved


@pytest.mark.parametrize("step", [1, 2])
def test_the_metrics_of_each_epoch_are_reported_once_although_sigterm_ends_one(
    batches: str, tmp_path: Path, step: int
) -> None:
    class Recorder(Tracker):
        def epoch(self, number: int, figures: Mapping[str, float]) -> None:
            numbers.append(number)

        def end(self, succeeded: bool) -> None: ...

    numbers: list[int] = []
    while 3 not in numbers:
        with suppress(TerminatedError):
            fit(
                f"{RECIPES}:terminated", dataset=batches, model=str(tmp_path / "model"), epochs=3, batch_size=50,
                recipe_params={"step": step}, checkpoints=str(tmp_path / "checkpoints"), trackers=[Recorder()],
            )  # fmt: skip
    assert numbers == [1, 2, 3]


def test_no_checkpoint_is_saved_once_the_loss_diverged(batches: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match="the loss diverged"):
        fit(
            f"{RECIPES}:diverging", dataset=batches, model=str(tmp_path / "model"), epochs=9, batch_size=5,
            checkpoints=str(tmp_path / "checkpoints"), checkpoint_steps=1,
        )  # fmt: skip
    saved = [SavedCheckpoint(uri, Checkpoint.load(f"{uri}/{INDEX}")) for uri in list_committed(tmp_path)]
    assert saved and all(math.isfinite(sum(one.read_loop_state()["loss_sum"])) for one in saved)
    assert all(weights.isfinite().all() for one in saved for weights in one.read_tensors("model").values())


@pytest.mark.parametrize(("batch_size", "place"), [(50, "epoch 1, step 1"), (100, "the end of epoch 1")])
def test_no_checkpoint_has_the_weights_that_a_gradient_of_nan_has_left(
    batches: str, tmp_path: Path, batch_size: int, place: str
) -> None:
    """The loss of the first step is finite: it is that before the update."""
    with pytest.raises(TrainyardError, match=f"the weights diverged: by {place}, one is NaN or infinite"):
        fit(
            f"{RECIPES}:not_differentiable", dataset=batches, model=str(tmp_path / "model"), epochs=2,
            batch_size=batch_size, checkpoints=str(tmp_path / "checkpoints"), checkpoint_steps=1,
        )  # fmt: skip
    assert list_committed(tmp_path) == []


def test_sigterm_ends_a_training_without_checkpoints_too(batches: str, tmp_path: Path) -> None:
    with pytest.raises(TerminatedError, match=r"after step 0\.$"):
        fit(
            f"{RECIPES}:terminated", dataset=batches, model=str(tmp_path / "model"), epochs=3, batch_size=100,
            recipe_params={"step": 1},
        )  # fmt: skip


class Schedule:
    """The fields of the recipe `scheduled` that a test sets."""

    fields: ClassVar[dict[str, Any]] = {}


def scheduled() -> Recipe:
    return replace(linear(), **Schedule.fields)


ONE_CYCLE = {"schedule": lambda optimizer, steps: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, steps)}
COSINE = {"schedule": torch.optim.lr_scheduler.CosineAnnealingLR, "schedule_by": "epoch"}


def resume(batches: str, folder: Path, schedule: dict[str, Any], epochs: int, precision: str = "float32") -> FitResult:
    """Train the recipe `scheduled` with a schedule, from the checkpoints in `folder` if there are some."""
    Schedule.fields = schedule
    return fit(
        f"{__name__}:scheduled", dataset=batches, model=str(folder / "model"), epochs=epochs, batch_size=25,
        precision=precision, checkpoints=str(folder / "checkpoints"),
    )  # fmt: skip


@pytest.mark.parametrize("schedule", [ONE_CYCLE, COSINE])
def test_other_epochs_than_in_the_checkpoint_are_refused_with_a_schedule(
    batches: str, tmp_path: Path, schedule: dict[str, Any]
) -> None:
    resume(batches, tmp_path, schedule, epochs=2)
    folder = re.escape(str(tmp_path / "checkpoints"))
    message = rf"epochs=4, but .* saved with epochs=2, .*Write epochs=2 again, or remove the folder {folder} to start"
    with pytest.raises(TrainyardError, match=message):
        resume(batches, tmp_path, schedule, epochs=4)
    assert len(resume(batches, tmp_path, schedule, epochs=2).history.epochs) == 2


def test_more_epochs_without_a_schedule_resume(batches: str, tmp_path: Path) -> None:
    first = resume(batches, tmp_path, {}, epochs=2).history.epochs
    more = resume(batches, tmp_path, {}, epochs=4).history.epochs
    assert more[:2] == first
    assert len(more) == 4


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"optimizer": lambda parameters: torch.optim.SGD(parameters, 0.01)}, "optimizer is SGD .*, but was SGD"),
        ({"normalize": None}, 'normalize is null, but was "element"'),
    ],
)
def test_a_recipe_whose_code_has_changed_does_not_resume(
    batches: str, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    resume(batches, tmp_path, {}, epochs=1)
    with pytest.raises(TrainyardError, match=rf"the recipe's {message}.* when the .* Use the recipe as it was, or rem"):
        resume(batches, tmp_path, changed, epochs=2)


def test_a_metric_that_is_added_to_the_recipe_can_be_monitored_by_a_training_that_resumes(
    batches: str, tmp_path: Path
) -> None:
    resume(batches, tmp_path, {"metrics": {}}, epochs=1)
    Schedule.fields = {}
    fitted = fit(
        f"{__name__}:scheduled", dataset=batches, model=str(tmp_path / "model"), epochs=2, batch_size=25,
        monitor="accuracy", checkpoints=str(tmp_path / "checkpoints"),
    )  # fmt: skip
    assert fitted.history.best == 1


def test_a_training_that_resumes_with_another_monitor_has_the_best_epoch_by_it(batches: str, tmp_path: Path) -> None:
    """Its weights are in the checkpoint if it is the last epoch; each epoch has a lower loss here."""

    def train(mode: str, epochs: int) -> int:
        return fit(
            f"{RECIPES}:linear", dataset=batches, model=str(tmp_path / "model"), epochs=epochs, batch_size=25,
            monitor_mode=mode, checkpoints=str(tmp_path / "checkpoints"), recipe_params={"learning_rate": 0.001},
        ).history.best  # fmt: skip

    assert [train("max", 2), train("min", 2)] == [0, 1]
    with pytest.raises(TrainyardError, match=r"'max', epoch 1 is the best, .* epoch 3.* Write monitor='loss' .*'min'"):
        train("min", 3), train("max", 3)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [({}, ONE_CYCLE, "has a schedule, but had none"), (ONE_CYCLE, {}, "has no schedule, but had one")],
)
def test_a_schedule_in_the_recipe_or_the_checkpoint_only_is_refused(
    batches: str, tmp_path: Path, before: dict[str, Any], after: dict[str, Any], message: str
) -> None:
    resume(batches, tmp_path, before, epochs=1)
    with pytest.raises(TrainyardError, match=rf"the recipe {message} when .* Use the recipe as it was, or remove"):
        resume(batches, tmp_path, after, epochs=1)


def test_a_checkpoint_without_the_number_of_epochs_can_be_resumed(
    batches: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume(batches, tmp_path, ONE_CYCLE, epochs=1)
    read = SavedCheckpoint.read_loop_state
    monkeypatch.setattr(
        SavedCheckpoint, "read_loop_state", lambda saved: {k: v for k, v in read(saved).items() if k != "epochs"}
    )
    assert len(resume(batches, tmp_path, ONE_CYCLE, epochs=1).history.epochs) == 1


@pytest.mark.parametrize(("before", "after"), [("float32", "float16"), ("float16", "float32")])
def test_another_precision_than_in_the_checkpoint_resumes(
    batches: str, tmp_path: Path, before: str, after: str
) -> None:
    resume(batches, tmp_path, {}, epochs=1, precision=before)
    assert len(resume(batches, tmp_path, {}, epochs=2, precision=after).history.epochs) == 2


NOT_TRAINED = (
    "the optimizer has 2 of the 4 parameters that require a gradient; the others, such as '0.weight', are not trained, "
    "as if freeze= named them. Add them to the optimizer, or name them in freeze=."
)


def train_last_layer(
    world: World | None, batches: str, folder: str, epochs: int = 3, **options: Any
) -> tuple[list[float], list[str]]:
    fitted = fit(
        f"{RECIPES}:of_last_layer", dataset=batches, model=f"{folder}/model", world=world, epochs=epochs,
        batch_size=50, clip_norm=0.5, checkpoints=f"{folder}/checkpoints", **options,
    )  # fmt: skip
    return get_losses(fitted.history.epochs), fitted.warnings


def test_parameters_that_the_optimizer_does_not_have_are_frozen(batches: str, tmp_path: Path) -> None:
    """Otherwise their gradients, which nothing removes, would add up, and clip_norm would count them."""
    losses, warnings = train_last_layer(None, batches, str(tmp_path / "a"))
    frozen, without = train_last_layer(None, batches, str(tmp_path / "b"), recipe_params={"freeze": ["0"]})
    assert losses == frozen
    assert (warnings, without) == ([NOT_TRAINED], [])
    train_last_layer(None, batches, str(tmp_path / "c"), epochs=1)
    assert train_last_layer(None, batches, str(tmp_path / "c"))[0] == losses


def train_last_layer_by(world: World, batches: str, folder: str, strategy: str) -> tuple[list[float], list[str]]:
    train_last_layer(world, batches, folder, epochs=1, strategy=strategy)
    return train_last_layer(world, batches, folder, strategy=strategy)


@pytest.mark.ranks
def test_parameters_that_the_optimizer_does_not_have_are_frozen_on_all_workers(batches: str, tmp_path: Path) -> None:
    alone = train_last_layer(None, batches, str(tmp_path))[0]
    with Workers(2) as pair:
        for strategy in ("allreduce", "fsdp", "threshold"):
            for losses, warnings in pair(train_last_layer_by, batches, str(tmp_path / strategy), strategy):
                assert warnings == [NOT_TRAINED]
                if strategy != "threshold":
                    assert losses == pytest.approx(alone, rel=1e-4)


def test_an_optimizer_of_other_parameters_is_refused(batches: str, tmp_path: Path) -> None:
    Schedule.fields = {"optimizer": lambda _: torch.optim.SGD(torch.nn.Linear(8, 3).parameters(), 0.1)}
    with pytest.raises(TrainyardError, match=r"^the optimizer has none of the parameters of the model"):
        fit(f"{__name__}:scheduled", dataset=batches, model=str(tmp_path), epochs=1, batch_size=50)


def train_with_metric_of_one_worker(world: World, batches: str, model: str) -> list[dict[str, float]]:
    return fit(
        f"{RECIPES}:of_one_worker", dataset=batches, model=model, world=world, epochs=6, batch_size=50,
        monitor="metric", early_stopping=2,
    ).history.epochs  # fmt: skip


@pytest.mark.ranks
def test_all_workers_stop_by_the_metrics_of_the_first(batches: str, tmp_path: Path) -> None:
    """Also of a metric whose value each worker computes from its own rows."""
    with Workers(2) as pair:
        first, second = pair(train_with_metric_of_one_worker, batches, str(tmp_path))
    assert first == second
    assert [epoch["metric"] for epoch in first] == [1, 2, 3]
