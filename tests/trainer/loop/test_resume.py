"""A gang that was cut off goes on from its last checkpoint, in any number of ranks, as if nothing had been."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.runs import EVERY, killed, losses, ordered, whole
from tests.trainer.workers import Workers
from trainyard.schemas import checkpoint as index
from trainyard.schemas.checkpoint import Checkpoint

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize(("name", "sizes"), [("allreduce", (4, 2, 3)), ("fsdp", (2, 1, 2))])
def test_a_run_of_gangs_of_other_sizes_has_the_loss_curve_of_one(
    batches: str, tmp_path: Path, undisturbed: list[float], name: str, sizes: tuple[int, int, int]
) -> None:
    """Killed in the first epoch and in the second; the global batches stay, and so do the losses."""
    run = (batches, str(tmp_path), EVERY[name], sizes[0], {})
    killed(tmp_path, sizes[0], f"{sizes[0] - 1} 7 kill", *run)
    killed(tmp_path, sizes[1], "0 18 kill", *run)
    with Workers(sizes[2]) as gang:
        found = gang(ordered, *run)
    assert losses(found[0]) == losses(found[1]) == pytest.approx(undisturbed, rel=1e-4)
    assert {Path(uri).name.rpartition("-")[2] for uri in whole(tmp_path)} == {"3"}, "each gang writes its own"


@pytest.mark.parametrize("name", ["allreduce", "averaging", "resetting", "threshold", "diloco", "horovod"])
def test_every_strategy_goes_on_with_all_of_its_state(batches: str, tmp_path: Path, name: str) -> None:
    """With dropout too: random numbers derive from the step."""
    options = {"recipe_params": {"orders": f"{tmp_path}/orders", "dropout": 0.3}}
    arguments = (batches, str(tmp_path), EVERY[name], None, options)
    killed(tmp_path, 2, "1 17 kill", *arguments)
    with Workers(2) as gang:
        found = gang(ordered, *arguments)[0]
        (tmp_path / "checkpoints").rename(tmp_path / "before")
        expected = gang(ordered, *arguments)[0]
    assert losses(found) == pytest.approx(losses(expected), rel=1e-6)


def test_low_rank_gradients_go_on_with_what_was_owed(batches: str, tmp_path: Path) -> None:
    """Two steps that send all, until DDP's buckets are what they were, are the only difference."""
    arguments = (batches, str(tmp_path), EVERY["powersgd"], None, {})
    killed(tmp_path, 2, "1 17 kill", *arguments)
    with Workers(2) as gang:
        found = gang(ordered, *arguments)[0]
    assert len(found) == 3 and found[-1]["accuracy"] > 0.95


def test_a_rank_that_is_asked_to_end_saves_the_gangs_state_first(batches: str, tmp_path: Path) -> None:
    options = {"epochs": 5000, "checkpoint_steps": 40}
    with Workers(2) as gang:
        gang.begin(ordered, batches, str(tmp_path), EVERY["allreduce"], None, options)
        until(lambda: bool(whole(tmp_path)))
        os.kill(gang.processes[1].pid or 0, signal.SIGTERM)
        outcomes = gang.outcomes()
        for outcome in outcomes:
            assert "TerminatedError: a rank was asked to end (SIGTERM) in epoch" in outcome
            assert "The state is saved; the next try goes on from there." in outcome
        newest = Checkpoint.load(f"{whole(tmp_path)[0]}/{index.INDEX}")
        told = outcomes[0].partition("in epoch ")[2].split(", after step ")
        assert (newest.epoch + 1, newest.step) == (int(told[0]), int(told[1].split(".")[0]))


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
