"""What a task does when it starts, and when its application has ended, for every state that a crash can leave."""

from __future__ import annotations

import pytest

from tests.plugins.results import output
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.yarn.lifecycle import (
    End,
    Explain,
    GiveUp,
    Reattach,
    StartAgain,
    Submit,
    UseResult,
    decide_on_end,
    decide_on_start,
)
from trainyard.yarn.resource_manager import Application

PLACE = TaskKey(dag_id="d", run_id="r", task_id="t", directory="/s/runs/d/r")


def application(number: int, state: str = "FINISHED", final_status: str = "SUCCEEDED") -> Application:
    return Application(
        id=f"application_1_000{number}", state=state, final_status=final_status, queue="etl",
        diagnostics="", tracking_url="", started=float(number),
    )  # fmt: skip


def record(number: int, status: str = "succeeded") -> RunRecord:
    return RunRecord(
        task_key=PLACE, job="export", application=application(number).id, started_at=float(number), seconds=1.0,
        status=status, output=output("export"), error=None if status == "succeeded" else "it failed", traceback=None,
    )  # fmt: skip


def test_a_task_without_applications_submits() -> None:
    assert decide_on_start([], None, None) == Submit()


@pytest.mark.parametrize("state", ["NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING"])
def test_a_live_application_is_reattached(state: str) -> None:
    live = application(2, state, "UNDEFINED")
    assert decide_on_start([application(1, "FAILED", "FAILED"), live], None, None) == Reattach(live)


def test_of_two_live_applications_the_older_is_reattached() -> None:
    older, younger = application(1, "RUNNING", "UNDEFINED"), application(2, "ACCEPTED", "UNDEFINED")
    assert decide_on_start([older, younger], None, None) == Reattach(older)


def test_the_result_of_a_finished_application_is_used() -> None:
    assert decide_on_start([application(1, "FAILED", "FAILED"), application(2)], record(2), None) == UseResult(
        record(2)
    )


def test_a_record_of_an_earlier_application_is_not_used() -> None:
    assert decide_on_start(
        [application(1), application(2, "KILLED", "KILLED")], record(1), application(1).id
    ) == Submit(after=(application(2, "KILLED", "KILLED"),))


def test_the_result_of_an_application_is_used_although_a_younger_duplicate_was_killed() -> None:
    assert decide_on_start([application(1), application(2, "KILLED", "KILLED")], record(1), None) == UseResult(
        record(1)
    )


def test_the_result_of_an_application_that_yarn_has_forgotten_is_used() -> None:
    assert decide_on_start([], record(1), None) == UseResult(record(1))


@pytest.mark.parametrize("latest", [None, record(1, "failed")])
def test_an_ended_application_without_a_successful_record_is_submitted_again(latest: RunRecord | None) -> None:
    assert decide_on_start([application(1)], latest, None) == Submit(after=(application(1),))


def test_a_superseded_result_is_computed_again() -> None:
    assert decide_on_start([application(1)], record(1), superseded=application(1).id) == Submit()


RUNNING, ENDED = application(1, "RUNNING", "UNDEFINED"), application(1)
KILLED, FAILED = application(1, "KILLED", "KILLED"), application(1, "FAILED", "FAILED")


@pytest.mark.parametrize(
    ("ended", "written", "no_answer", "is_of_earlier", "killed", "expected"),
    [
        (RUNNING, None, None, False, False, Reattach(RUNNING)),
        (RUNNING, record(1), None, True, True, Reattach(RUNNING)),
        (ENDED, record(1), None, False, False, UseResult(record(1))),
        (FAILED, record(1), None, False, False, UseResult(record(1))),
        (None, record(1), "no route", False, False, UseResult(record(1))),
        (ENDED, record(1, "failed"), None, False, False, Explain(record(1, "failed"))),
        (KILLED, record(1, "failed"), None, True, False, Explain(record(1, "failed"))),
        (None, record(1, "failed"), "no route", False, False, Explain(record(1, "failed"))),
        (KILLED, None, None, True, False, StartAgain()),
        (KILLED, None, None, True, True, Explain(None)),
        (KILLED, None, None, False, False, Explain(None)),
        (FAILED, None, None, True, False, Explain(None)),
        (None, None, "no route", True, False, GiveUp("no route")),
        (None, None, None, True, False, Explain(None)),
    ],
)
def test_the_record_decides_how_a_task_ends_and_without_one_the_application(
    ended: Application | None,
    written: RunRecord | None,
    no_answer: str | None,
    is_of_earlier: bool,
    killed: bool,
    expected: End,
) -> None:
    assert decide_on_end(ended, written, no_answer, is_of_earlier, killed) == expected
