"""How each task of a run ended: what its driver recorded, and what Airflow recorded of its failure."""

from __future__ import annotations

from trainyard.schemas.runs import failure, run_record
from trainyard.schemas.runs.failure import Failure
from trainyard.schemas.runs.run_record import RunRecord


def read_run(directory: str, unreadable: dict[str, str] | None = None) -> list[RunRecord]:
    """Return the newest outcome of each task of a run, in the order of their start.

    Of a failure, the error is that of the task, which begins with the cause; a driver sees only the effects of some.

    Args:
        directory: The run's directory.
        unreadable: Where to note why a document cannot be read; None raises the error.

    Raises:
        TrainyardError: A document cannot be read.
    """
    outcomes = {record.task_key.task: record for record in run_record.read_run(directory, unreadable)}
    for failed in failure.read_run(directory, unreadable):
        record = outcomes.get(failed.task_key.task)
        if record and _is_recorded(failed, record):
            outcomes[failed.task_key.task] = record.model_copy(update={"error": failed.error})
        elif record is None or run_record.last_attempt(record) < failed.task_key.try_number:
            outcomes[failed.task_key.task] = _without_record(failed)
    return sorted(outcomes.values(), key=lambda outcome: outcome.started_at)


def _is_recorded(failed: Failure, record: RunRecord) -> bool:
    """Return whether a failure is that of the record: of its attempt, or of a later one that waited for its driver."""
    attempt, recorded = failed.task_key.try_number, record.task_key.try_number
    has_its_error = bool(record.error) and str(record.error) in failed.error
    return record.status == "failed" and (attempt == recorded or (attempt > recorded and has_its_error))


def _without_record(failed: Failure) -> RunRecord:
    return RunRecord(
        task_key=failed.task_key, job="", application="", started_at=failed.at, seconds=0.0, status="failed",
        error=failed.error,
    )  # fmt: skip
