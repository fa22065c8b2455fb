"""An interrupted group resumes from its last checkpoint, with any number of workers, and with the same losses."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.runs import RECIPES, STRATEGIES, get_losses, list_committed, train_until_killed, train_with_fault
from tests.trainer.workers import Workers
from trainyard.schemas.runs import checkpoint as index
from trainyard.schemas.runs.checkpoint import Checkpoint
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.world import World

pytestmark = pytest.mark.ranks


@pytest.mark.full
@pytest.mark.parametrize(("name", "sizes"), [("allreduce", (3, 1, 2)), ("fsdp", (2, 1, 2))])
def test_a_run_of_groups_of_different_sizes_has_the_losses_of_one_worker(
    batches: str, tmp_path: Path, uninterrupted: list[float], name: str, sizes: tuple[int, int, int]
) -> None:
    """Kill a worker in the first epoch and in the second; global batches and losses stay the same."""
    run = (batches, str(tmp_path), STRATEGIES[name], sizes[0], {})
    train_until_killed(tmp_path, sizes[0], f"{sizes[0] - 1} 7 kill", *run)
    train_until_killed(tmp_path, sizes[1], "0 18 kill", *run)
    with Workers(sizes[2]) as workers:
        results = workers(train_with_fault, *run)
    assert get_losses(results[0]) == get_losses(results[1]) == pytest.approx(uninterrupted, rel=1e-4)
    assert {Path(uri).name.rpartition("-")[2] for uri in list_committed(tmp_path)} == {"3"}, "each group writes its own"


@pytest.mark.faults
@pytest.mark.parametrize("name", ["allreduce", "averaging", "resetting", "threshold", "diloco", "horovod"])
def test_every_strategy_resumes_with_all_of_its_state(batches: str, tmp_path: Path, name: str) -> None:
    """Also with dropout: random numbers derive from the step."""
    options = {"recipe_params": {"fault": f"{tmp_path}/fault", "dropout": 0.3}}
    arguments = (batches, str(tmp_path), STRATEGIES[name], None, options)
    train_until_killed(tmp_path, 2, "1 17 kill", *arguments)
    with Workers(2) as workers:
        resumed = workers(train_with_fault, *arguments)[0]
        (tmp_path / "checkpoints").rename(tmp_path / "before")
        expected = workers(train_with_fault, *arguments)[0]
    assert get_losses(resumed) == pytest.approx(get_losses(expected), rel=1e-6)


def train_with_unused_layers(
    world: World, batches: str, folder: str, strategy: dict[str, Any], epochs: int
) -> list[dict[str, float]]:
    """Train from the checkpoints in `folder`, if there are some; a layer is used from the second epoch on."""
    fitted = fit(
        f"{RECIPES}:used_later", dataset=batches, model=f"{folder}/model", world=world, strategy=strategy,
        checkpoints=f"{folder}/checkpoints", epochs=epochs, batch_size=48, recipe_params={"step": 16},
    )  # fmt: skip
    return fitted.history.epochs


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "workers"),
    [
        ("allreduce", 1), ("finding unused", 2), ("horovod", 2), ("averaging", 2), ("threshold", 2), ("diloco", 2),
        ("fsdp", 2),
    ],
)  # fmt: skip
def test_a_layer_that_has_not_been_used_yet_resumes_without_state(
    batches: str, tmp_path: Path, name: str, workers: int
) -> None:
    with Workers(workers) as group:
        expected = group(train_with_unused_layers, batches, str(tmp_path / "whole"), STRATEGIES[name], 3)[0]
        for epochs in (1, 3):
            resumed = group(train_with_unused_layers, batches, str(tmp_path / "parts"), STRATEGIES[name], epochs)[0]
    assert get_losses(resumed) == pytest.approx(get_losses(expected), rel=1e-6)


@pytest.mark.faults
def test_low_rank_gradients_resume_with_almost_the_same_losses(batches: str, tmp_path: Path) -> None:
    """The only difference are two uncompressed steps, until DDP has rebuilt its buckets."""
    arguments = (batches, str(tmp_path), STRATEGIES["powersgd"], None, {})
    train_until_killed(tmp_path, 2, "1 17 kill", *arguments)
    with Workers(2) as workers:
        resumed = get_losses(workers(train_with_fault, *arguments)[0])
        (tmp_path / "checkpoints").rename(tmp_path / "before")
        expected = get_losses(workers(train_with_fault, *arguments)[0])
    assert resumed[:2] == expected[:2], "the first epoch was trained before"
    assert resumed == pytest.approx(expected, rel=0.02)


@pytest.mark.full
def test_the_group_saves_its_state_when_a_worker_receives_sigterm(batches: str, tmp_path: Path) -> None:
    options = {"epochs": 5000, "checkpoint_steps": 40}
    with Workers(2) as workers:
        workers.start(train_with_fault, batches, str(tmp_path), STRATEGIES["allreduce"], None, options)
        wait_until(lambda: bool(list_committed(tmp_path)))
        os.kill(workers.processes[1].pid or 0, signal.SIGTERM)
        outcomes = workers.outcomes()
        for outcome in outcomes:
            assert "TerminatedError: a worker received SIGTERM in epoch" in outcome
            assert "The state is saved; the next attempt resumes from it." in outcome
        newest = Checkpoint.load(f"{list_committed(tmp_path)[0]}/{index.INDEX}")
        position = outcomes[0].partition("in epoch ")[2].split(", after step ")
        assert (newest.epoch + 1, newest.step) == (int(position[0]), int(position[1].split(".")[0]))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
