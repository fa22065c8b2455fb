"""Wait for free capacity of the cluster in the triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from trainyard.triggers.poller import get_poller
from trainyard.yarn.capacity import ResourceRequest, shortfall
from trainyard.yarn.snapshot import Resources

MAX_AGE_SECONDS = 5.0
"""The age of a snapshot that sensors still share. An older one may show room that another stage has taken since."""


class CapacityTrigger(BaseTrigger):  # type: ignore[misc]
    """Fire when the cluster has room for all containers of an application at once.

    While there is no answer, whatever the reason, the trigger polls on.

    Args:
        queue: The queue of the application.
        request: The fields of a `ResourceRequest`.
        poll: The seconds between two polls.
    """

    def __init__(self, queue: str, request: Mapping[str, Any], poll: float) -> None:
        super().__init__()
        self.queue, self.request, self.poll = queue, dict(request), poll

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments to recreate the trigger."""
        fields = {"queue": self.queue, "request": self.request, "poll": self.poll}
        return f"{type(self).__module__}.{type(self).__qualname__}", fields

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event when there is room."""
        sizes = {name: Resources(**self.request[name]) for name in ("driver", "executor")}
        request = ResourceRequest(**(self.request | sizes))
        while True:
            try:
                snapshot = await get_poller().take_snapshot(min(self.poll, MAX_AGE_SECONDS))
                missing = shortfall(request, snapshot, snapshot.queue_of(self.queue))
                if not missing:
                    yield TriggerEvent({"room": f"there is room for {request.count} containers"})
                    return
            except Exception as error:  # also an expired ticket, or a configuration that is missing for a while
                missing = str(error)
            self.log.info("%s", missing)
            await asyncio.sleep(self.poll)
