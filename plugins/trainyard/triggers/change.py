"""The base class of triggers that look for a change now and then."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

_READERS = ThreadPoolExecutor(4, thread_name_prefix="change")
"""Threads for requests that may be slow: other triggers do not wait for them."""


class ChangeTrigger(BaseEventTrigger):  # type: ignore[misc]
    """Yield an event for each change, for a sensor that defers or for an `AssetWatcher`.

    While there is no answer, whatever the reason, the trigger looks again later. What a watcher has seen is lost when
    the triggerer restarts: the newest state is then reported again, so that no change is missed.

    Args:
        poll: The seconds between two looks.

    Attributes:
        FIELDS: The arguments of the constructor, which are attributes too.
    """

    FIELDS: ClassVar[tuple[str, ...]]

    def __init__(self, poll: float) -> None:
        super().__init__()
        self.poll = poll

    @abstractmethod
    def look(self) -> dict[str, Any] | None:
        """Return the payload of the next event, None while nothing has changed. It may block.

        Raises:
            TrainyardError: A name or a connection is not valid, or something is not available.
        """

    @abstractmethod
    def note(self, payload: dict[str, Any]) -> None:
        """Remember what an event reported, so that the next one reports something else."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments to recreate the trigger."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in self.FIELDS}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each change."""
        while True:
            try:
                payload = await asyncio.get_running_loop().run_in_executor(_READERS, self.look)
            except Exception as error:  # the storage is away, a ticket has expired
                self.log.warning("%s", error)
                payload = None
            if payload:
                self.note(payload)
                yield TriggerEvent(payload)
            await asyncio.sleep(self.poll)
