"""The operator that ends applications whose task is gone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainyard.compat import AirflowException
from trainyard.errors import TrainyardError
from trainyard.hooks import airflow_id
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.jobs import orphans
from trainyard.jobs.options import validation
from trainyard.jobs.options.base import HasOptions
from trainyard.jobs.options.common import ConnectionOptions
from trainyard.jobs.task_instance import read_state
from trainyard.schemas.runs.owner import remove_owner
from trainyard.yarn import cluster

if TYPE_CHECKING:
    from airflow.sdk import Context


class ReapOperator(HasOptions, BaseOperator):  # type: ignore[misc]
    """Kill the applications on YARN whose task has ended, or was deleted from this Airflow.

    Returns (XCom): the ids of the applications that were killed.

    Nothing collects their result. They are found by the tag of the storage root; applications of another Airflow stay.
    If YARN refuses to kill one, the task kills the others, and fails.

    Args:
        kwargs: Arguments of `BaseOperator`.
    """

    OPTIONS = ConnectionOptions

    def __init__(self, *, conn_id: str = "trainyard_default", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        validation.check(self, ConnectionOptions)

    def execute(self, context: Context) -> list[str]:
        """Kill them, and return their ids."""
        try:
            root = TrainyardHook(self.conn_id).get_conn().storage
            manager = cluster.resource_manager()
            read = partial(read_state, context["ti"])
            airflow = airflow_id.list_ids()
            live = orphans.list_live(manager, root, airflow, read)
            self.log.info("%s", orphans.as_text(live, root))
            killed, refused = orphans.kill_orphans(manager, live, self.log.warning)
            for submission in orphans.list_stale_owners(root, live, airflow, read):
                remove_owner(root, submission)
        except TrainyardError as error:
            raise AirflowException(f"ReapOperator {self.task_id!r}: {error}") from None
        if refused:
            raise AirflowException(
                f"ReapOperator {self.task_id!r}: YARN refused to kill {', '.join(refused)}; the log says why."
            )
        return killed
