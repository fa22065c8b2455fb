"""Waiting for an application without a worker: the triggerer asks the ResourceManager now and then."""

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
    """Fires when an application has ended.

    A ResourceManager that is absent, recovers, refuses (while a ticket is renewed), or does not know the
    application (any more) is asked again for `patience` seconds. Others that run for the same task are
    killed: a submission that was thought lost may still have come through. What an earlier try had submitted
    may have ended already, and is asked for after three polls: the scheduler hears of a worker's end some
    seconds late, and fails a task that runs again by then.

    :param application: id of what is waited for
    :param tag: what all applications of the task carry
    :param reattached: whether an earlier try of the task submitted it; told in the event
    :param poll: seconds between two questions
    :param patience: seconds without an answer after which the trigger fires regardless
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
        """What the triggerer makes it anew from."""
        fields = {name: getattr(self, name) for name in ("application", "tag", "reattached", "poll", "patience")}
        return f"{type(self).__module__}.{type(self).__qualname__}", fields

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event: the `application` that ended, with `trouble` when nobody answered in time."""
        manager = await asyncio.to_thread(cluster.resource_manager)
        if self.reattached:
            await asyncio.sleep(3 * self.poll)
        answered, trouble, told = time.monotonic(), "", ""
        while time.monotonic() - answered < self.patience:
            try:
                found = await asyncio.to_thread(manager.tagged, self.tag)
                ours = [one for one in found if one.id == self.application]
                for surplus in (one for one in found if one.live and one not in ours):
                    self.log.warning("%s does the same as %s; it is killed.", surplus.id, self.application)
                    await asyncio.to_thread(manager.kill, surplus.id)
                if ours and not ours[0].live:
                    yield TriggerEvent({"application": self.application, "reattached": self.reattached})
                    return
                if ours:
                    answered = time.monotonic()
                    if (now := describe_state(ours[0])) != told:
                        self.log.info("%s", now)
                        told = now
                trouble = "it does not know the application"
            except TrainyardError as error:
                trouble = str(error)
            await asyncio.sleep(self.poll)
        yield TriggerEvent({"application": self.application, "trouble": trouble})

    async def on_kill(self) -> None:
        """The task was marked or cleared while it waited: its applications end."""
        await asyncio.to_thread(cluster.end, self.tag)


def describe_state(application: Application) -> str:
    """How an application stands, without the figures and times in it that change all the while."""
    why = _CHANGING.sub("", application.diagnostics).strip()
    return f"{application.id} is {application.state}{f': {why}' if why else ''}"
