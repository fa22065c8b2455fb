"""The bottleneck of a run, from the seconds of its workers."""

from __future__ import annotations

import pytest

from trainyard.schemas.specs.strategies import BUILT_IN, FSDP, Allreduce
from trainyard.trainer.measuring.bottleneck import Bottleneck, PhaseSeconds, describe_bottleneck

STEP = {"data wait": 0.2, "forward": 4.0, "backward": 5.0, "optimizer": 0.5, "wait for communication": 0.3}


def describe(*workers: dict[str, float], times: float = 100.0) -> str:
    """Return the sentence for workers with these seconds, each so many times."""
    seconds_by_worker = [
        PhaseSeconds(number, f"host-{number}", {name: times * value for name, value in (STEP | seconds).items()})
        for number, seconds in enumerate(workers)
    ]
    return str(describe_bottleneck(seconds_by_worker, Allreduce()))


@pytest.mark.parametrize(
    ("workers", "begins", "contains"),
    [
        ([{}, {}], "Compute-bound: 95% of the time", "compile=True"),
        ([{}], "Compute-bound", "more workers"),
        ([{"data wait": 12.0}, {"data wait": 12.5}], "Input-bound: workers wait for data 55% of the time", "cache_gb"),
        (
            [{"wait for communication": 11.0}, {"wait for communication": 12.0}],
            "Communication-bound: workers wait for communication 51% of the time; strategy={",
            "'compression': 'fp16'",
        ),
        (
            [
                {"wait for communication": 16.0},
                {"forward": 20.0, "wait for communication": 0.2},
                {"wait for communication": 15.9},
            ],
            "Straggler: rank 1 on host-1 takes 62% of the time longer than the others",
            "'forward'",
        ),
        (
            [{"data wait": 12.0}, {"wait for communication": 12.0}],
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


@pytest.mark.parametrize(
    ("worker", "sentences"),
    [
        (
            {"wait for communication": 1.2},
            "Compute-bound: 87% of the time goes into forward, backward and optimizer; more workers, "
            "precision='bfloat16' or compile=True would help. After it, communication costs 11%; strategy={'name': "
            "'allreduce', 'compression': 'fp16'} halves the bytes, strategy='averaging' communicates once in five "
            "steps, and a larger batch_size takes fewer steps.",
        ),
        (
            {"data wait": 0.6},
            "Compute-bound: 91% of the time goes into forward, backward and optimizer; more workers, "
            "precision='bfloat16' or compile=True would help. After it, waiting for data costs 6%.",
        ),
        (
            {"data wait": 12.0},
            "Input-bound: workers wait for data 55% of the time; move work from the recipe's transform to prepare, or "
            "set cache_gb, for a dataset on HDFS, or, on a GPU, gpu_cache_gb to the size of the whole split. After it, "
            "computation costs 44%; more workers, precision='bfloat16' or compile=True would help.",
        ),
        (
            {"data wait": 0.01, "wait for communication": 0.01},
            "Compute-bound: 100% of the time goes into forward, backward and optimizer; more workers, "
            "precision='bfloat16' or compile=True would help.",
        ),
    ],
)
def test_the_largest_share_comes_first_and_the_next_one_with_its_cost(worker: dict[str, float], sentences: str) -> None:
    assert describe(worker, worker) == sentences


def test_what_cost_no_time_has_no_advice() -> None:
    """Compression was advised for half a second of training."""
    sentence = describe({"wait for communication": 11.0}, {"wait for communication": 12.0}, times=0.05)
    assert (
        sentence
        == "Communication-bound: workers wait for communication 51% of the time. After it, computation costs 48%."
    )


def test_validation_and_checkpoints_do_not_count_as_steps() -> None:
    assert describe({"validate": 100.0, "wait for workers": 70.0, "checkpoint": 50.0, "set up": 30.0}) == describe({})


def test_a_run_without_steps_has_no_bottleneck() -> None:
    bottleneck = describe_bottleneck([PhaseSeconds(0, "here", {"set up": 1.0})], Allreduce())
    assert bottleneck == Bottleneck("No training step was executed") and str(bottleneck).endswith("executed.")


def test_every_strategy_with_measured_communication_has_advice() -> None:
    assert [options for options in BUILT_IN.values() if not options.LESS_COMMUNICATION] == [FSDP]
