"""The steps of a loop: random numbers of rows, losses of parts, and what a step refuses."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.nn import functional

from tests.trainer import datasets, recipes
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.schemas.runs.events import EventLog
from trainyard.trainer import Recipe, Run
from trainyard.trainer.loop.fit import FitResult, fit
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.run.batch import Batch
from trainyard.trainer.run.signals.interruptions import TerminatedError
from trainyard.trainer.world import World

ROWS, STEPS = 121, 6
"""The last of six batches of 24 rows has one row: in a group of two, rank 0 has none of it."""

Step = Callable[[Run, Batch, nn.Module, optim.Optimizer], Any]


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    splits = {"train": datasets.blobs(ROWS), "validation": datasets.blobs(48, seed=1)}
    return datasets.write(tmp_path_factory.mktemp("data") / "dataset", splits)


class Loop:
    """Call a function in each step, and collect what it returns; it may raise StopIteration to leave the loop."""

    def __init__(self, step: Step, publish: bool = True, recipe: Callable[[], Recipe] = recipes.linear) -> None:
        self.step, self.publish, self.recipe = step, publish, recipe
        self.returned: list[Any] = []

    def __call__(self, run: Run) -> None:
        net = run.model(self.recipe)
        optimizer = optim.SGD(net.parameters(), 0.1)
        run.track(net=net, optimizer=optimizer)
        for batch in run.steps():
            try:
                self.returned.append(self.step(run, batch, net, optimizer))
            except StopIteration:
                break
        if self.publish:
            run.publish(net)


def train(
    batches: str, folder: Path, loop: Callable[[Run], None], world: World | None = None, **options: Any
) -> FitResult:
    options = {"epochs": 1, "batch_size": 24} | options
    return fit(loop=loop, dataset=batches, model=str(folder / "model"), world=world, **options)


def take(batch: Batch, net: nn.Module, optimizer: optim.Optimizer) -> None:
    """Take an ordinary step."""
    optimizer.zero_grad()
    batch.backward(functional.cross_entropy(net(batch), batch["label"]))
    optimizer.step()


def draw(run: Run, batch: Batch, *_: Any) -> list[torch.Tensor]:
    """Return random numbers of a training batch, of its parts twice, of the whole again, and of two splits."""
    numbers = [batch.randn(2)]
    numbers += [torch.cat([part.randn(2) for part in batch.parts(2)]) for _ in range(2)]
    numbers += [batch.randn(2)]
    return numbers + [part.randn(2) for split in ("validation", "train") for part in run.batches(split)]


def test_random_numbers_differ_between_batches_splits_and_calls(batches: str, tmp_path: Path) -> None:
    loop = Loop(draw)
    train(batches, tmp_path, loop, epochs=2)
    first = [numbers[0].tolist() for of_step in loop.returned for numbers in of_step]
    assert len({tuple(pair) for pair in first}) == len(first) == 2 * STEPS * (4 + 2 + STEPS)


def test_random_numbers_of_rows_do_not_depend_on_the_parts(batches: str, tmp_path: Path) -> None:
    drawn = []
    for count in (1, 5):
        loop = Loop(lambda run, batch, *_, count=count: torch.cat([part.randn(2) for part in batch.parts(count)]))
        train(batches, tmp_path, loop)
        drawn.append(torch.cat(loop.returned))
    assert drawn[0].equal(drawn[1])


def test_backward_returns_the_mean_of_each_of_several_losses(batches: str, tmp_path: Path) -> None:
    """Each of them has a value of its own in each part."""

    def step(_: Run, batch: Batch, net: nn.Module, __: optim.Optimizer) -> tuple[float, ...]:
        net.zero_grad()
        for number, part in enumerate(batch.parts(2)):
            losses = [part.backward(net(part).mean() * 0 + value + number) for value in (1.0, 10.0)]
        return tuple(loss.item() for loss in losses)

    loop = Loop(step)
    train(batches, tmp_path, loop)
    assert loop.returned[0] == (1.5, 10.5)


def test_a_last_part_without_each_loss_is_refused(batches: str, tmp_path: Path) -> None:
    def step(_: Run, batch: Batch, net: nn.Module, __: optim.Optimizer) -> None:
        for number, part in enumerate(batch.parts(2)):
            for _ in range(2 - number):
                part.backward(net(part).mean())

    with pytest.raises(TrainyardError, match=r"its last part had not"):
        train(batches, tmp_path, Loop(step))


def test_an_optimizer_that_is_not_tracked_is_refused(batches: str, tmp_path: Path) -> None:
    def step(_: Run, batch: Batch, net: nn.Module, __: optim.Optimizer) -> None:
        take(batch, net, optim.Adam(net.parameters()))

    with pytest.raises(TrainyardError, match=r"class Adam takes a step, but is not tracked.*run\.track\(\)"):
        train(batches, tmp_path, Loop(step))
    take_a_step_elsewhere()


def test_an_optimizer_of_something_else_need_not_be_tracked(batches: str, tmp_path: Path) -> None:
    train(batches, tmp_path, Loop(lambda *_: take_a_step_elsewhere()))


def take_a_step_elsewhere() -> None:
    value = torch.ones(1, requires_grad=True)
    value.sum().backward()
    optim.SGD([value], 0.1).step()


def test_publishing_within_the_loop_is_refused(batches: str, tmp_path: Path) -> None:
    for at in (2, STEPS - 1):

        def step(run: Run, batch: Batch, net: nn.Module, _: optim.Optimizer, at: int = at) -> None:
            if batch.step == at:
                run.publish(net)

        with pytest.raises(TrainyardError, match=r"run\.publish\(\) was called within the loop"):
            train(batches, tmp_path, Loop(step, publish=False))


def test_publishing_twice_is_refused(batches: str, tmp_path: Path) -> None:
    def publish_twice(run: Run) -> None:
        nets = [run.model(recipes.linear).requires_grad_(False) for _ in range(2)]
        run.track(a=nets[0], b=nets[1])
        list(run.steps())
        for net in nets:
            run.publish(net)

    with pytest.raises(TrainyardError, match=r"run\.publish\(\) was called twice"):
        train(batches, tmp_path, publish_twice)


def test_micro_batches_that_the_loop_does_not_use_are_refused(batches: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"micro_batches=5, but the loop has not used it.*batch\.parts\(\)"):
        train(batches, tmp_path, Loop(lambda *_: None), micro_batches=5)


def test_a_format_that_is_unknown_is_refused_before_the_training(batches: str, tmp_path: Path) -> None:
    loop = Loop(lambda *_: None)
    with pytest.raises(TrainyardError, match="format 'onx' is unknown"):
        train(batches, tmp_path, loop, formats=["onx"])
    assert loop.returned == []


def test_a_batch_with_a_row_that_batch_normalization_refuses_is_found_before_the_training(
    batches: str, tmp_path: Path
) -> None:
    loop = Loop(lambda *_: None, recipe=normalized)
    with pytest.raises(TrainyardError, match=r"recipe 'tests.*normalized': with batch_size=24, 121 rows"):
        train(batches, tmp_path, loop)
    assert loop.returned == []
    train(batches, tmp_path, Loop(lambda *_: None, recipe=normalized), batch_size=11)


def normalized() -> Recipe:
    return Recipe(model=nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 3)), features="x", label="label", classes=3)


@pytest.mark.parametrize("params", [{"rate": 0.1}, {"run": 1}])
def test_params_that_the_loop_does_not_have_are_refused(batches: str, tmp_path: Path, params: dict[str, Any]) -> None:
    with pytest.raises(TrainyardError, match=rf"loop_params=.*{next(iter(params))}.*are not the parameters"):
        train(batches, tmp_path, Loop(lambda *_: None), loop_params=params)


@pytest.mark.parametrize("name", ["name", "self", "number"])
def test_a_metric_may_have_any_name(batches: str, tmp_path: Path, name: str) -> None:
    loop = Loop(lambda _, batch, *__: batch.report(**{name: 0.5}))
    phases = Phases(EventLog(str(tmp_path / "run"), "train", "rank-0"))
    assert train(batches, tmp_path, loop, phases=phases).metrics[name] == 0.5
    assert phases.current.training and f": {name} 0.5, " in phases.current.training.describe()


def test_batches_of_the_training_split_are_in_stored_order(batches: str, tmp_path: Path) -> None:
    loop = Loop(lambda run, *_: torch.cat([batch["x"] for batch in run.batches("train")]))
    train(batches, tmp_path, loop, balance=True)
    assert all(rows.equal(torch.from_numpy(datasets.blobs(ROWS)["x"])) for rows in loop.returned)


class Unequal:
    """A step that one worker does not take as the others."""

    def __init__(self, rank: int, mistake: str) -> None:
        self.rank, self.mistake = rank, mistake

    def __call__(self, _: Run, batch: Batch, net: nn.Module, optimizer: optim.Optimizer) -> None:
        if self.mistake == "no backward" and self.rank == 1 and batch.step == 3:
            return
        if self.mistake == "without rows" and not batch.rows:
            return
        take(batch, net, optimizer)
        if self.mistake == "leave" and batch.step == 2 + self.rank:
            raise StopIteration
        if self.mistake == "leave last" and self.rank == 1 and batch.ends_epoch:
            raise StopIteration


def make_mistake(world: World, batches: str, folder: Path, mistake: str) -> str:
    with pytest.raises(TrainyardError) as error:
        train(batches, folder, Loop(Unequal(world.rank, mistake)), world, epochs=2)
    return str(error.value)


def count_steps(world: World, batches: str, folder: Path) -> float:
    """Count the steps in a buffer, and return the count."""
    counter = nn.Module()
    counter.register_buffer("steps", torch.zeros(()))

    def loop(run: Run) -> None:
        net = run.model(recipes.linear)
        run.track(net=net, counter=run.prepare(counter))
        for batch in run.steps():
            batch.backward(net(batch).mean())
            counter.steps += 1
        run.publish(net)

    train(batches, folder, loop, world)
    return counter.steps.item()


def measure_bytes(world: World, batches: str, folder: Path) -> tuple[float, float]:
    """Return the bytes per step of an epoch, and of one that resumes after its first step."""

    def terminate(_: Run, batch: Batch, net: nn.Module, optimizer: optim.Optimizer) -> None:
        take(batch, net, optimizer)
        os.kill(os.getpid(), signal.SIGTERM)

    loop = Loop(lambda _, *step: take(*step))
    whole = train(batches, folder, loop, world)
    options = {"checkpoints": str(folder / "checkpoints")}
    with pytest.raises(TerminatedError, match="after step 1"):
        train(batches, folder, Loop(terminate), world, **options)
    loop = Loop(lambda _, *step: take(*step))
    resumed = train(batches, folder, loop, world, **options)
    assert len(loop.returned) == STEPS - 1
    return whole.metrics["bytes_per_step"], resumed.metrics["bytes_per_step"]


class Rank:
    """A state that has a tensor of another shape, or value, on each worker."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"tensor": self.tensor}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.tensor = state["tensor"]


def track_rank(world: World, batches: str, folder: Path, tensor: str) -> str:
    """Track equal tensors, and one that differs; return the error."""
    differing = torch.zeros(2 + world.rank) if tensor == "shape" else torch.tensor([1.0, world.rank])

    def loop(run: Run) -> None:
        net = run.model(recipes.linear)
        run.track(net=net, equal=Rank(torch.ones(2)), mine=Rank(differing))
        for batch in run.steps():
            batch.backward(net(batch).mean())
        run.publish(net)

    with pytest.raises(TrainyardError) as error:
        train(batches, folder, loop, world, checkpoints=str(folder / tensor))
    return str(error.value)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(2) as workers:
        yield workers


@pytest.mark.ranks
def test_a_state_that_differs_between_workers_is_refused(workers: Workers, batches: str, tmp_path: Path) -> None:
    for tensor in ("shape", "value"):
        for error in workers(track_rank, batches, tmp_path, tensor):
            assert "track(mine=...): the tensors of the Rank of rank 1 are not those of rank 0" in error


@pytest.mark.ranks
def test_workers_take_the_same_steps(workers: Workers, batches: str, tmp_path: Path) -> None:
    for mistake, message in {
        "no backward": "rank 0 is at backward pass 1 of step 4, and rank 1 has none in step 4",
        "without rows": "rank 0 has none in step 6, and rank 1 is at backward pass 1 of step 6",
        "leave": "rank 0 has left the loop after step 3, and rank 1 is at backward pass 1 of step 4",
        "leave last": "rank 0 has ended the epoch after step 6, and rank 1 has left the loop after step 6",
    }.items():
        for error in workers(make_mistake, batches, tmp_path, mistake):
            assert message in error


@pytest.mark.ranks
def test_a_worker_without_rows_keeps_what_the_loop_counts(workers: Workers, batches: str, tmp_path: Path) -> None:
    assert workers(count_steps, batches, tmp_path) == [STEPS, STEPS]


@pytest.mark.ranks
def test_bytes_are_those_of_the_steps_since_a_resume(workers: Workers, batches: str, tmp_path: Path) -> None:
    for whole, resumed in workers(measure_bytes, batches, tmp_path):
        assert resumed == whole
