"""The context of a task that runs without Airflow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.lazy_sequence import LazyXComSequence

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context


class MappedResults(LazyXComSequence[Any]):  # type: ignore[misc]
    """What the output of a mapped task is when a task runs, with the results in place of Airflow's database."""

    def __init__(self, *results: Any) -> None:
        self.results = results
        self._len = len(results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, index: Any) -> Any:
        return self.results[index]


def make_context(task: BaseOperator, events: OutletEventAccessors | None = None, **fields: Any) -> Context:
    """Return what an operator without a job uses of its context: events of assets, and the identity of its task."""
    known = {"dag_id": "toy", "run_id": "r1", "map_index": -1, "try_number": 1, "max_tries": 0}
    instance = SimpleNamespace(task=task, task_id=task.task_id, **(known | fields))
    return cast("Context", {"ti": instance, "outlet_events": OutletEventAccessors() if events is None else events})
