"""How a worker ended, by the type of its error, and which of several failures of a group is reported."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from trainyard.errors import TrainyardError, UnavailableError
from trainyard.trainer.connections.clock import Offset
from trainyard.trainer.group.outcome import (
    LostWorkerError,
    MemoryKillError,
    Outcome,
    build_failure,
    build_loss,
    get_result,
)
from trainyard.trainer.run.signals.interruptions import TerminatedError


class LostDeviceError(torch.AcceleratorError):
    error_code = 214  # cudaErrorECCUncorrectable


class DeviceAssertError(torch.AcceleratorError):
    error_code = 710


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (TerminatedError("SIGTERM"), "terminated"),
        (UnavailableError("cannot read"), "lost"),
        (LostDeviceError("uncorrectable ECC error encountered"), "lost"),
        (DeviceAssertError("device-side assert triggered"), "failed"),
        (torch.OutOfMemoryError("CUDA out of memory"), "failed"),
        (dist.DistBackendError("NCCL error: remote process exited"), "disconnected"),
        (dist.DistNetworkError("Connection reset by peer"), "disconnected"),
        (RuntimeError("[gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]"), "disconnected"),
        (RuntimeError("the user's service answers: Connection reset by peer"), "failed"),
        (ValueError("NCCL is a word in a user's message"), "failed"),
        (TrainyardError("the loss diverged"), "failed"),
        (ModuleNotFoundError("No module named 'torch'"), "failed"),
    ],
)
def test_errors_are_classified_by_their_type(error: Exception, ended: str) -> None:
    assert build_failure(0, error, Offset()).ended == ended


def test_a_failure_has_the_time_of_the_drivers_clock() -> None:
    late = build_failure(0, ValueError("x"), Offset(behind_ns=3_600_000_000_000))
    assert late.ended_at == pytest.approx(time.time() + 3600, abs=60)


def outcome(rank: int, ended: Any, at: float, error: str | None = "it") -> Outcome:
    return Outcome(rank, "here", at, ended, error=error)


def test_the_result_of_a_group_is_that_of_rank_0() -> None:
    outcomes = [Outcome(rank, "here", 1.0, result={"rank": rank}) for rank in (1, 0, 2)]
    assert get_result(outcomes, 3) == {"rank": 0}


def test_of_several_failures_the_first_in_time_is_reported() -> None:
    with pytest.raises(TrainyardError, match=r"^rank 2 of 3 on here failed: mine"):
        get_result([outcome(0, "failed", 4.0), outcome(1, "failed", 5.0), outcome(2, "failed", 3.0, "mine")], 3)


def test_a_failure_is_reported_and_not_its_consequences() -> None:
    with pytest.raises(TrainyardError, match=r"^rank 1 of 3 on here failed: mine"):
        get_result([outcome(0, "disconnected", 1.0), outcome(1, "failed", 3, "mine"), outcome(2, "terminated", 2.0)], 3)


def test_a_termination_is_reported_before_the_disconnections_that_follow_from_it() -> None:
    with pytest.raises(LostWorkerError, match=r"^rank 2 of 3 on here failed"):
        get_result([outcome(0, "disconnected", 1.0), outcome(1, "done", 2.0, None), outcome(2, "terminated", 3.0)], 3)


def test_a_failure_of_user_code_is_not_that_of_a_lost_worker() -> None:
    with pytest.raises(TrainyardError) as failure:
        get_result([outcome(0, "failed", 1.0), outcome(1, "disconnected", 2.0)], 3)
    assert not isinstance(failure.value, LostWorkerError)


KILLED = "Container killed by YARN for exceeding physical memory limits. 2.2 GB of 2 GB physical memory used."
JOB_ABORTED = (
    "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Could not recover from a failed barrier "
    "ResultStage. Most recent failure reason: Stage failed because barrier task ResultTask(3, 1) finished "
    "unsuccessfully.\n"
)


@pytest.mark.parametrize(
    ("report", "worker", "cause"),
    [
        (
            f"{JOB_ABORTED}ExecutorLostFailure (executor 2 exited caused by a task) Reason: {KILLED}\nDriver stack",
            "rank 1 of 2",
            f"ExecutorLostFailure (executor 2 exited caused by a task) Reason: {KILLED}",
        ),
        (
            f"{JOB_ABORTED}Driver stacktrace:",
            "rank 1 of 2",
            JOB_ABORTED.splitlines()[1],
        ),
        ("Python worker exited unexpectedly", "one of the 2 workers", "Python worker exited unexpectedly"),
        ("Lost", "one of the 2 workers", "Lost"),
    ],
)
def test_a_lost_worker_has_the_reason_why_its_executor_was_lost(report: str, worker: str, cause: str) -> None:
    text = str(build_loss(2, report))
    assert text.startswith(f"{worker} ended without an error")
    assert text.endswith(f"Spark reports: {cause}")


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (KILLED, MemoryKillError),
        ("Container killed by YARN for exceeding virtual memory limits. 5 GB of 4 GB virtual memory.", MemoryKillError),
        ("Container from a bad node: exit status 137. Killed by external signal", LostWorkerError),
    ],
)
def test_a_memory_kill_by_yarn_is_told_from_other_losses(reason: str, kind: type[LostWorkerError]) -> None:
    assert type(build_loss(2, f"{JOB_ABORTED}ExecutorLostFailure (executor 2 exited) Reason: {reason}")) is kind
