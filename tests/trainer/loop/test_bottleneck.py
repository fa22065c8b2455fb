"""The bottleneck of a run, from the seconds of its workers."""

from __future__ import annotations

import pytest

from trainyard.schemas.specs.strategies import NAMES, Allreduce
from trainyard.trainer.loop.bottleneck import LESS_COMMUNICATION, PhaseSeconds, describe_bottleneck

STEP = {"data wait": 0.2, "forward": 4.0, "backward": 5.0, "optimizer": 0.5, "wait for communication": 0.3}


def describe(*workers: dict[str, float]) -> str:
    seconds_by_worker = [
        PhaseSeconds(number, f"host-{number}", STEP | seconds) for number, seconds in enumerate(workers)
    ]
    return describe_bottleneck(seconds_by_worker, Allreduce())


@pytest.mark.parametrize(
    ("workers", "begins", "contains"),
    [
        ([{}, {}], "Compute-bound: 95%", "compile=True"),
        ([{}], "Compute-bound", "More workers"),
        ([{"data wait": 9.0}, {"data wait": 9.5}], "Input-bound: workers wait for data 48%", "cache_gb"),
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
            "Straggler: rank 1 on host-1 takes 38% longer",
            "'forward'",
        ),
        (
            [{"data wait": 8.0}, {"wait for communication": 8.0}],
            "Straggler: rank 0 on host-0",
            "most of it in 'data wait'",
        ),
    ],
)
def test_the_largest_cause_is_described_with_what_would_help(
    workers: list[dict[str, float]], begins: str, contains: str
) -> None:
    sentence = describe(*workers)
    assert sentence.startswith(begins) and contains in sentence


def test_validation_and_checkpoints_do_not_count_as_steps() -> None:
    assert describe({"validate": 100.0, "wait for workers": 70.0, "checkpoint": 50.0, "set up": 30.0}) == describe({})


def test_a_run_without_steps_has_no_bottleneck() -> None:
    assert (
        describe_bottleneck([PhaseSeconds(0, "here", {"set up": 1.0})], Allreduce()) == "No training step was executed."
    )


def test_every_strategy_with_measured_communication_has_advice() -> None:
    assert set(LESS_COMMUNICATION) == set(NAMES) - {"fsdp"}
