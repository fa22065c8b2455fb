"""What a worker does for its script: restore and store its checkpoints, and record what it reports."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.script_checkpoint import ScriptCheckpoint
from trainyard.trainer.measuring.phases import CurrentPhase
from trainyard.trainer.scripts.checkpoints import ScriptCheckpoints, claim, find_number
from trainyard.trainer.scripts.metrics import MetricRecorder
from trainyard.trainer.scripts.reporting import CHECKPOINTS, REPORTS
from trainyard.trainer.scripts.reports import ReportReader
from trainyard.trainer.scripts.storing import CheckpointStorer, KeyValueStore
from trainyard.trainer.scripts.tracking import BackgroundTracking

FOLDER = "checkpoints"


class Restored(NamedTuple):
    """What rank 0 has restored, which the other workers restore too.

    Attributes:
        group: The number of the worker group.
        number: The number of the newest checkpoint of any group, 0 if there is none.
        document: The checkpoint as JSON; None if there is none.
    """

    group: int
    number: int
    document: str | None


def restore(root: str, folder: Path, on_progress: Callable[[], None] = lambda: None) -> Restored:
    """Restore the newest checkpoint on rank 0, for a group that starts.

    Args:
        root: The directory of the task's checkpoints.
        folder: The folder of the process.
        on_progress: Called now and then.

    Raises:
        UnavailableError: The storage does not answer.
    """
    group, number = claim(root), find_number(root)
    index = ScriptCheckpoints(root, group).find_newest(folder / FOLDER, on_progress)
    if index:
        print(f"restored checkpoint {index.number}: {len(index.files)} files", flush=True)
    return Restored(group, number, index.to_json() if index else None)


class Session:
    """Serve one script while it runs; a context manager.

    Args:
        root: The directory of the task's checkpoints.
        folder: The folder of the process.
        restored: What rank 0 has restored.
        rank: The number of the worker.
        size: How many workers there are.
        exchange: The store of the group, by which all workers store files; None if rank 0 alone does.
        events: The events of the worker.
        current: What the worker's heartbeats show.
        tracking: What gets the metrics too.

    Raises:
        UnavailableError: The storage does not answer.
        TrainyardError: The checkpoint that rank 0 has restored was altered since.

    Attributes:
        variables: The variables that the script gets.
        has_failed: Whether nothing may be stored any more, so that the script has to end.
    """

    def __init__(
        self,
        root: str,
        folder: Path,
        restored: Restored,
        rank: int,
        size: int,
        exchange: KeyValueStore | None,
        events: EventLog,
        current: CurrentPhase,
        tracking: BackgroundTracking | None = None,
    ) -> None:
        index = None if restored.document is None else ScriptCheckpoint.from_json(restored.document)
        checkpoints = ScriptCheckpoints(root, restored.group)
        if index and rank:
            checkpoints.restore(index, folder / FOLDER, current.report_progress)
        (folder / FOLDER).mkdir(exist_ok=True)
        self._stack = ExitStack()
        metrics = {name: value for name, value in index.metrics.items() if value is not None} if index else {}
        self._reader = self._stack.enter_context(ReportReader(folder / "reports", metrics))
        self._current = current
        self._recorder = MetricRecorder(events, current, rank == 0, tracking)
        self._storer: CheckpointStorer | None = None
        if rank == 0 or exchange:
            self._storer = self._stack.enter_context(
                CheckpointStorer(
                    checkpoints, folder / FOLDER, folder, index, restored.number, rank, size, exchange,
                    lambda: self._reader.metrics,
                )
            )  # fmt: skip
        self.variables = {CHECKPOINTS: str(folder / FOLDER), REPORTS: str(folder / "reports")}

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def has_failed(self) -> bool:
        """Whether nothing may be stored any more, so that the script has to end."""
        return self._storer is not None and self._storer.fatal is not None

    @property
    def result(self) -> dict[str, Any]:
        """The part of the result that the script has reported."""
        return {"metrics": self._reader.metrics} if self._reader.metrics else {}

    def record_reports(self) -> None:
        """Record what the script has reported since the last call."""
        for report in self._reader.read():
            self._recorder.record(report)

    def finish(self, take_last: bool, seconds: float) -> None:
        """Record the last reports of a script that has ended, and store its files; see `CheckpointStorer.finish`."""
        self.record_reports()
        self._current.is_judged = False
        self._recorder.end()
        if self._storer:
            self._storer.finish(take_last, seconds)
