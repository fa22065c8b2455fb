"""Which failures of a task end its applications. `test_operator.py` has the life of a task."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trainyard.compat import AirflowException, AirflowFailException, AirflowTaskTimeout, TaskDeferralTimeout
from trainyard.jobs.task_run import ends_applications

FAILED = AirflowException("failed")
REFUSED = AirflowFailException("refused")
TIMED_OUT = AirflowTaskTimeout("too long")
GAVE_UP = TaskDeferralTimeout("too long")


@pytest.mark.parametrize(
    ("error", "try_number", "cancel_on_kill", "ends"),
    [
        (FAILED, 1, True, False),
        (FAILED, 3, True, True),
        (FAILED, 3, False, True),
        (REFUSED, 1, True, True),
        (REFUSED, 1, False, True),
        (TIMED_OUT, 1, True, False),
        (TIMED_OUT, 3, True, True),
        (GAVE_UP, 1, True, True),
        (GAVE_UP, 1, False, False),
        (GAVE_UP, 3, False, True),
        (KeyboardInterrupt(), 1, True, False),
        (KeyboardInterrupt(), 3, True, True),
    ],
)
def test_applications_end_when_no_attempt_follows(
    error: BaseException, try_number: int, cancel_on_kill: bool, ends: bool
) -> None:
    """The task has two retries."""
    ti = SimpleNamespace(try_number=try_number, max_tries=2)
    assert ends_applications(error, ti, cancel_on_kill) is ends
