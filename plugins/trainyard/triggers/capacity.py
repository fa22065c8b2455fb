"""Waiting for room on the cluster without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from trainyard.yarn import cluster
from trainyard.yarn.capacity import ResourceRequest, shortfall
from trainyard.yarn.resource_manager import UnreachableError
from trainyard.yarn.snapshot import Resources


class CapacityTrigger(BaseTrigger):  # type: ignore[misc]
    """Fires when all containers of an application have room at once. A silent ResourceManager is asked again.

    :param queue: the queue that they would be granted in
    :param asked: fields of a `ResourceRequest`
    :param poll: seconds between two questions
    """

    def __init__(self, queue: str, asked: Mapping[str, Any], poll: float) -> None:
        super().__init__()
        self.queue, self.asked, self.poll = queue, dict(asked), poll

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What the triggerer makes it anew from."""
        fields = {"queue": self.queue, "asked": self.asked, "poll": self.poll}
        return f"{type(self).__module__}.{type(self).__qualname__}", fields

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event, when there is room."""
        sizes = {name: Resources(**self.asked[name]) for name in ("driver", "executor")}
        asked = ResourceRequest(**(self.asked | sizes))
        while True:
            try:
                snapshot = await asyncio.to_thread(cluster.take_snapshot)
                queue = snapshot.queue(self.queue)
                lacking = shortfall(asked, snapshot, queue) if queue else f"there is no queue {self.queue!r}"
                if not lacking:
                    yield TriggerEvent({"room": f"{asked.count} containers have room"})
                    return
            except UnreachableError as error:
                lacking = str(error)
            self.log.info("%s", lacking)
            await asyncio.sleep(self.poll)
