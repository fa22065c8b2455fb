"""Wait for an application in the triggerer, by polling the ResourceManager."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from trainyard.yarn.poller import get_poller, kill
from trainyard.yarn.resource_manager import Application

POLL_SECONDS = 5.0
PATIENCE_SECONDS = 900.0
_CHANGING = re.compile(r"^\[[^\]]*\]|\s+(?:Details\s*:|Last Node which was processed).*", re.DOTALL)


class ApplicationTrigger(BaseTrigger):  # type: ignore[misc]
    """Fire when an application has ended.

    While there is no answer, whatever the reason (the ResourceManager is down, recovers, or has no such application; a
    Kerberos ticket has expired), the trigger polls on for `patience` seconds. It kills other live applications of the
    same task: a submission that seemed lost may arrive late. An application of an earlier attempt may have ended
    already, so the first poll for it waits three intervals: the scheduler learns a few seconds late that the worker has
    ended, and fails a task that resumes before.

    Args:
        application: The id of the application.
        tag: The YARN tag of every application of the task.
        reattached: Whether an earlier attempt submitted the application. The event has it too.
        poll: The seconds between two polls.
        patience: The seconds without an answer after which the trigger fires with `error`.
    """

    def __init__(
        self,
        application: str,
        tag: str,
        reattached: bool = False,
        poll: float = POLL_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        super().__init__()
        self.application, self.tag, self.reattached = application, tag, reattached
        self.poll, self.patience = poll, patience

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments to recreate the trigger."""
        fields = {name: getattr(self, name) for name in ("application", "tag", "reattached", "poll", "patience")}
        return f"{type(self).__module__}.{type(self).__qualname__}", fields

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: the `application` that ended, with `error` when there was no answer in time."""
        if self.reattached:
            await asyncio.sleep(3 * self.poll)
        answered, no_answer, logged = time.monotonic(), "", ""
        while time.monotonic() - answered < self.patience:
            try:
                found, others = await get_poller().find(self.application, self.tag, max_age=self.poll)
                await self._kill_duplicates(others)
                if found and not found.live:
                    yield TriggerEvent({"application": self.application, "reattached": self.reattached})
                    return
                if found:
                    answered = time.monotonic()
                    if (state := describe_state(found)) != logged:
                        self.log.info("%s", state)
                        logged = state
                no_answer = "it has no such application"
            except Exception as error:  # a trigger that fails would leave an application without a task
                no_answer = str(error) or type(error).__name__
            await asyncio.sleep(self.poll)
        yield TriggerEvent({"application": self.application, "error": no_answer})

    async def on_kill(self) -> None:
        """Kill the application of a task that was cleared or marked while it was deferred."""
        await kill(self.application)

    async def _kill_duplicates(self, others: list[Application]) -> None:
        """Kill other applications of the task. Errors are logged: they do not concern the one that is waited for."""
        for duplicate in others:
            self.log.warning("Killing %s, a duplicate of %s.", duplicate.id, self.application)
            try:
                await kill(duplicate.id)
            except Exception as error:
                self.log.warning("%s cannot be killed: %s", duplicate.id, error)


def describe_state(application: Application) -> str:
    """Return the state of an application, without the figures and times in it that change at every poll."""
    why = _CHANGING.sub("", application.diagnostics).strip()
    return f"{application.id} is {application.state}{f': {why}' if why else ''}"
