"""Wait for the end of any application on YARN."""

from __future__ import annotations

from typing import Any

from trainyard.errors import TrainyardError
from trainyard.hooks.yarn import connect
from trainyard.triggers.change import ChangeTrigger
from trainyard.yarn import cluster


class ApplicationEndTrigger(ChangeTrigger):
    """Yield an event when an application has ended: its `application`, `state`, `final_status` and `diagnostics`.

    Args:
        application: The id of the application, of Trainyard or not.
        poll: The seconds between two looks.
        yarn_conn_id: The connection by which the ResourceManager is asked, "" for HADOOP_CONF_DIR.
    """

    FIELDS = ("application", "poll", "yarn_conn_id")

    def __init__(self, application: str, poll: float = 60.0, yarn_conn_id: str = "") -> None:
        super().__init__(poll)
        self.application, self.yarn_conn_id = application, yarn_conn_id
        self._reported = False

    def look(self) -> dict[str, Any] | None:
        """Return the end of the application, None while it is live.

        Raises:
            TrainyardError: The ResourceManager has no such application, or does not answer.
        """
        if self._reported:
            return None
        connect(self.yarn_conn_id)
        found = cluster.resource_manager().application(self.application)
        if found is None:
            raise TrainyardError(f"the ResourceManager has no application {self.application!r}.")
        if found.live:
            return None
        return {
            "application": found.id, "state": found.state, "final_status": found.final_status,
            "diagnostics": found.diagnostics,
        }  # fmt: skip

    def note(self, payload: dict[str, Any]) -> None:
        """Report no second end."""
        self._reported = True
