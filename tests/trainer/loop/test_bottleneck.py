"""What limits a run, said of the seconds of its ranks."""

from __future__ import annotations

import pytest

from trainyard.schemas.specs.strategies import NAMES, Allreduce
from trainyard.trainer.loop.bottleneck import LESS_TO_SEND, PhaseSeconds, describe_bottleneck

STEP = {"data wait": 0.2, "forward": 4.0, "backward": 5.0, "optimizer": 0.5, "wait for communication": 0.3}


def said(*ranks: dict[str, float]) -> str:
    spent = [PhaseSeconds(number, f"host-{number}", STEP | seconds) for number, seconds in enumerate(ranks)]
    return describe_bottleneck(spent, Allreduce())


@pytest.mark.parametrize(
    ("ranks", "begins", "holds"),
    [
        ([{}, {}], "Compute-bound: 95%", "compile=True"),
        ([{}], "Compute-bound", "More workers"),
        ([{"data wait": 9.0}, {"data wait": 9.5}], "Input-bound: ranks wait for data 48%", "cache_gb"),
        (
            [{"wait for communication": 6.0}, {"wait for communication": 7.0}],
            "Communication-bound: 36%",
            "'compression': 'fp16'",
        ),
        (
            [
                {"wait for communication": 6.0},
                {"forward": 10.0, "wait for communication": 0.2},
                {"wait for communication": 5.9},
            ],
            "One rank holds up the others: rank 1 on host-1 takes 38% longer",
            "'forward'",
        ),
        (
            [{"data wait": 8.0}, {"wait for communication": 8.0}],
            "One rank holds up the others: rank 0 on host-0",
            "most of it in 'data wait'",
        ),
    ],
)
def test_the_largest_share_is_told_with_what_would_help(ranks: list[dict[str, float]], begins: str, holds: str) -> None:
    found = said(*ranks)
    assert found.startswith(begins) and holds in found


def test_validation_and_checkpoints_are_not_the_time_of_steps() -> None:
    assert said({"validate": 100.0, "wait for workers": 70.0, "checkpoint": 50.0, "set up": 30.0}) == said({})


def test_a_run_without_steps_is_not_judged() -> None:
    assert describe_bottleneck([PhaseSeconds(0, "here", {"set up": 1.0})], Allreduce()) == "No step was taken."


def test_every_strategy_whose_exchanges_are_timed_has_advice() -> None:
    assert set(LESS_TO_SEND) == set(NAMES) - {"fsdp"}
