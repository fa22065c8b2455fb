"""Wait for an application in the triggerer, by polling the ResourceManager."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from trainyard.errors import TrainyardError
from trainyard.yarn import cluster
from trainyard.yarn.resource_manager import Application

POLL_SECONDS = 5.0
PATIENCE_SECONDS = 900.0
_CHANGING = re.compile(r"^\[[^\]]*\]|\s+Details\s*:.*", re.DOTALL)


class ApplicationTrigger(BaseTrigger):  # type: ignore[misc]
    """Fire when an application has ended.

    While the ResourceManager is down, recovers, refuses the user (until a Kerberos ticket is renewed), or has no such
    application, the trigger polls on for `patience` seconds. It kills other live applications of the same task: a
    submission that seemed lost may arrive late. An application of an earlier attempt may have ended already, so the
    first poll for it waits three intervals: the scheduler learns a few seconds late that the worker has ended, and
    fails a task that resumes before.

    Args:
        application: The id of the application.
        tag: The YARN tag of every application of the task.
        reattached: Whether an earlier attempt submitted the application. The event has it too.
        poll: The seconds between two polls.
        patience: The seconds without an answer after which the trigger fires with `trouble`.
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
        """Yield one event: the `application` that ended, with `trouble` when there was no answer in time."""
        manager = await asyncio.to_thread(cluster.resource_manager)
        if self.reattached:
            await asyncio.sleep(3 * self.poll)
        answered, trouble, logged = time.monotonic(), "", ""
        while time.monotonic() - answered < self.patience:
            try:
                tagged = await asyncio.to_thread(manager.tagged, self.tag)
                ours = [application for application in tagged if application.id == self.application]
                for duplicate in (other for other in tagged if other.live and other not in ours):
                    self.log.warning("Killing %s, a duplicate of %s.", duplicate.id, self.application)
                    await asyncio.to_thread(manager.kill, duplicate.id)
                if ours and not ours[0].live:
                    yield TriggerEvent({"application": self.application, "reattached": self.reattached})
                    return
                if ours:
                    answered = time.monotonic()
                    if (state := describe_state(ours[0])) != logged:
                        self.log.info("%s", state)
                        logged = state
                trouble = "it has no such application"
            except TrainyardError as error:
                trouble = str(error)
            await asyncio.sleep(self.poll)
        yield TriggerEvent({"application": self.application, "trouble": trouble})

    async def on_kill(self) -> None:
        """Kill the applications of a task that was cleared or marked while it was deferred."""
        await asyncio.to_thread(cluster.end, self.tag)


def describe_state(application: Application) -> str:
    """Return the state of an application, without the figures and times in it that change at every poll."""
    why = _CHANGING.sub("", application.diagnostics).strip()
    return f"{application.id} is {application.state}{f': {why}' if why else ''}"
