"""Loops whose networks are sharded: strategy='fsdp'."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
import torch

from tests.trainer.run.test_run import batches, get_epochs, read_losses, train_with_fault, weights
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer.world import World

__all__ = ["batches"]
LOOPS = ("plain", "in_parts", "gan", "distillation", "averaged", "clipped")


def train_as(
    world: World, batches: str, model: str, loop: str, strategy: str, batch_size: int = 50
) -> list[dict[str, float]]:
    return get_epochs(world, batches, model, loop, strategy=strategy, batch_size=batch_size)


@pytest.mark.full
@pytest.mark.ranks
def test_sharded_networks_learn_what_whole_ones_do(batches: str, tmp_path: Path) -> None:
    """Also two networks with an optimizer each, and in the last batch, of which one worker has no row."""
    with Workers(2) as workers:
        for loop in LOOPS:
            whole, _ = workers(train_as, batches, str(tmp_path / loop), loop, "allreduce")
            first, second = workers(train_as, batches, str(tmp_path / f"sharded {loop}"), loop, "fsdp")
            assert first == second
            for epoch, expected in zip(first, whole, strict=True):
                assert epoch == pytest.approx(expected, rel=1e-4, abs=1e-6), loop
            for name, tensor in weights(str(tmp_path / loop)).items():
                torch.testing.assert_close(weights(str(tmp_path / f"sharded {loop}"))[name], tensor)


def train_sharded(
    world: World, batches: str, folder: str, fault: str, workers: int | None = None
) -> list[dict[str, float]]:
    return train_with_fault(world, batches, folder, fault, workers, strategy="fsdp")


@pytest.mark.ranks
def test_a_killed_loop_resumes_its_shards_on_any_number_of_workers(batches: str, tmp_path: Path) -> None:
    for name in ("undisturbed", "killed"):
        (tmp_path / name).mkdir()
    expected = train_with_fault(World(), batches, str(tmp_path / "undisturbed"), "")
    folder = tmp_path / "killed"
    with Workers(2) as workers:
        outcomes = workers.start(train_sharded, batches, str(folder), f"0 7 1 {signal.SIGKILL}").outcomes()
    assert outcomes[1] is None, outcomes
    with Workers(3) as workers:
        outcomes = workers.start(train_sharded, batches, str(folder), f"1 4 2 {signal.SIGKILL}", 3).outcomes()
    assert outcomes[2] is None, outcomes
    with Workers(2) as workers:
        resumed, _ = workers(train_sharded, batches, str(folder), "", 3)
    for epoch, undisturbed in zip(resumed, expected, strict=True):
        assert epoch == pytest.approx(undisturbed, rel=1e-4, abs=1e-6)
    losses = read_losses(folder)
    assert losses == pytest.approx(read_losses(tmp_path / "undisturbed"), rel=1e-4)


def find_shards(world: World, batches: str, model: str) -> list[int]:
    """Return the elements of each parameter that this worker has."""
    get_epochs(
        world, batches, model, "counted", strategy="fsdp", epochs=1, loop_params={"file": f"{model} {world.rank}"}
    )
    return [int(line) for line in Path(f"{model} {world.rank}").read_text().split()]


@pytest.mark.ranks
def test_each_worker_has_its_part_of_weights_and_of_the_optimizer(batches: str, tmp_path: Path) -> None:
    with Workers(2) as workers:
        first, second = workers(find_shards, batches, str(tmp_path / "model"))
    whole = [tensor.numel() for tensor in weights(str(tmp_path / "model")).values()]
    assert [sum(parts) for parts in zip(first, second, strict=True)] == [*whole, *whole]
    assert max(first) < max(whole)


@pytest.mark.full
@pytest.mark.ranks
def test_parts_and_validated_averages_of_sharded_networks(batches: str, tmp_path: Path) -> None:
    """The last batch of 46 rows has three: one worker has rows for fewer parts than the other."""
    with Workers(2) as workers:
        for loop, batch_size in (("in_parts", 46), ("validated_average", 50)):
            of = [
                workers(train_as, batches, f"{tmp_path}/{loop} {strategy}", loop, strategy, batch_size)[0]
                for strategy in ("allreduce", "fsdp")
            ]
            for whole, sharded in zip(*of, strict=True):
                assert sharded == pytest.approx(whole, rel=1e-4, abs=1e-6), loop


def share(world: World, batches: str, model: str, how: str) -> str:
    """Return the error of a loop that gives parameters to the run twice, or shards to another object."""
    try:
        get_epochs(
            world, batches, model, "sharing", strategy={"name": "fsdp", "wrap": ["Linear"]}, epochs=1,
            checkpoints=f"{model}/checkpoints", loop_params={"how": how},
        )  # fmt: skip
    except TrainyardError as error:
        return str(error)
    return ""


@pytest.mark.full
@pytest.mark.ranks
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("outer", r"the Sequential that run\.prepare\(\) .* shares parameters with another network.*outermost network"),
        ("tied", r"the Linear that run\.prepare\(\) .* shares parameters with another network"),
        ("copies", r"track\(copies=\.\.\.\): the Copies has shards of parameters"),
        ("twice", ""),
    ],
)
def test_what_sharded_networks_cannot_share_is_refused(batches: str, tmp_path: Path, how: str, message: str) -> None:
    with Workers(2) as workers:
        first, second = workers(share, batches, str(tmp_path / "model"), how)
    assert re.search(message, first) and re.search(message, second) and bool(first) == bool(message)
