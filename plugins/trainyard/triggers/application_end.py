"""Wait for the end of any application on YARN."""

from __future__ import annotations

from typing import Any

from trainyard.triggers.change import ChangeTrigger
from trainyard.yarn import cluster


class ApplicationEndTrigger(ChangeTrigger):
    """Yield an event when an application has ended: its `application`, `state`, `final_status` and `diagnostics`.

    Args:
        application: The id of the application, of Trainyard or not.
        poll: The seconds between two looks.
    """

    FIELDS = ("application", "poll")

    def __init__(self, application: str, poll: float = 60.0) -> None:
        super().__init__(poll)
        self.application = application
        self._reported = False

    def look(self) -> dict[str, Any] | None:
        """Return the end of the application, None while it is live; one that is unknown has the state `UNKNOWN`.

        Raises:
            TrainyardError: The ResourceManager does not answer, or refuses the request.
        """
        if self._reported:
            return None
        found = cluster.resource_manager().application(self.application)
        if found is None:
            unknown = "the ResourceManager has no application of this id"
            return {
                "application": self.application, "state": "UNKNOWN", "final_status": "UNKNOWN", "diagnostics": unknown,
            }  # fmt: skip
        if found.live:
            return None
        return {
            "application": found.id, "state": found.state, "final_status": found.final_status,
            "diagnostics": found.diagnostics,
        }  # fmt: skip

    def note(self, payload: dict[str, Any]) -> None:
        """Report no second end."""
        self._reported = True
