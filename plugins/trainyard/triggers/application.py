"""Wait for an application in the triggerer, by polling the ResourceManager."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from trainyard.errors import TrainyardError
from trainyard.triggers.driver_log import DriverLogReader
from trainyard.triggers.poller import Position, get_poller, kill
from trainyard.triggers.progress import INTERVAL_SECONDS, ProgressReader
from trainyard.yarn.resource_manager import Application

POLL_SECONDS = 5.0
FIRST_POLL_SECONDS = 1.0
PATIENCE_SECONDS = 900.0
REATTACHED_SECONDS = 15.0
_CHANGING = re.compile(r"^\[[^\]]*\]|\s+(?:Details\s*:|Last Node which was processed).*", re.DOTALL)


class ApplicationTrigger(BaseTrigger):  # type: ignore[misc]
    """Fire when an application has ended.

    While there is no answer, whatever the reason (the ResourceManager is down, recovers, or has no such application; a
    Kerberos ticket has expired), the trigger polls on for `patience` seconds. While its application is live, it kills
    younger ones of the same task: a submission that seemed lost may arrive late. An application of an earlier attempt
    may have ended already, so the first poll for it waits a few seconds: the scheduler learns late that the worker has
    ended, and fails a task that resumes before.

    Args:
        application: The id of the application.
        tag: The YARN tag of every application of the task.
        reattached: Whether an earlier attempt submitted the application. The event has it too.
        progress: The URI of the task's progress document, whose content is logged while the application runs.
        get_logs: Whether new lines of the driver's log are logged too.
        cancel_on_kill: Whether the application is ended when the task is cleared or marked.
        poll: The seconds between two polls, at most: see `get_pause`.
        patience: The seconds without an answer after which the trigger fires with `error`.
    """

    def __init__(
        self,
        application: str,
        tag: str,
        reattached: bool = False,
        progress: str = "",
        get_logs: bool = False,
        cancel_on_kill: bool = True,
        poll: float = POLL_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        super().__init__()
        self.application, self.tag, self.reattached, self.progress = application, tag, reattached, progress
        self.get_logs, self.cancel_on_kill = get_logs, cancel_on_kill
        self._problem = ""
        self.poll, self.patience = poll, patience

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments to recreate the trigger."""
        names = ("application", "tag", "reattached", "progress", "get_logs", "cancel_on_kill", "poll", "patience")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: the `application` that ended, with `error` when there was no answer in time."""
        if self.reattached:
            await asyncio.sleep(min(3 * self.poll, REATTACHED_SECONDS))
        started = answered = time.monotonic()
        no_answer, log_state = "", StateLog(self.log.info)
        progress = ProgressReader(self.progress) if self.progress else None
        driver_log = DriverLogReader() if self.get_logs else None
        while time.monotonic() - answered < self.patience:
            pause = get_pause(time.monotonic() - started, self.poll)
            try:
                found, others = await get_poller().find(self.application, self.tag, max_age=pause)
                if found and not found.live:
                    yield TriggerEvent({"application": self.application, "reattached": self.reattached})
                    return
                if found:
                    await self._kill_duplicates([other for other in others if other.age_key > found.age_key])
                    answered = time.monotonic()
                    log_state(found, await get_poller().find_position(found, max_age=self.poll))
                    if progress and found.state == "RUNNING" and (line := await progress.next_line()):
                        self.log.info("%s", line)
                    if driver_log and found.state == "RUNNING":
                        await self._log_driver(driver_log, found)
                    no_answer = ""
                else:
                    no_answer = self._log_no_answer(no_answer, "it has no such application")
            except Exception as error:  # a trigger that fails would leave an application without a task
                no_answer = self._log_no_answer(no_answer, str(error) or type(error).__name__)
            await asyncio.sleep(pause)
        yield TriggerEvent({"application": self.application, "error": no_answer})

    async def on_kill(self) -> None:
        """Kill the application of a task that was cleared or marked while it was deferred."""
        if self.cancel_on_kill:
            await kill(self.application)

    def _log_no_answer(self, last: str, problem: str) -> str:
        """Log why there is no answer, if that is another reason than the last one; return it."""
        if problem != last:
            self.log.warning("There is no answer for %s: %s", self.application, problem)
        return problem

    async def _log_driver(self, reader: DriverLogReader, application: Application) -> None:
        """Log the new lines of the driver. An error is logged: the application does not depend on it."""
        try:
            for line in await reader.next_lines(application):
                self.log.info("%s", line)
        except TrainyardError as error:
            if str(error) != self._problem:
                self.log.warning("The driver's log is not available: %s", error)
            self._problem = str(error)

    async def _kill_duplicates(self, others: list[Application]) -> None:
        """Kill applications of the task. Errors are logged: they do not concern the one that is waited for."""
        for duplicate in others:
            self.log.warning("Killing %s, a duplicate of %s.", duplicate.id, self.application)
            try:
                await kill(duplicate.id)
            except Exception as error:
                self.log.warning("%s cannot be killed: %s", duplicate.id, error)


def get_pause(waited: float, poll: float) -> float:
    """Return the seconds until the next poll: a twentieth of those waited so far, 1 at least, at most `poll`.

    So the end of a short application is seen soon, and a long one is polled seldom.
    """
    return min(poll, max(FIRST_POLL_SECONDS, waited / 20))


class StateLog:
    """Log each change of an application's state, and its position in the queue at most twice a minute.

    Args:
        log: The log, called with a format and its argument.
    """

    def __init__(self, log: Callable[[str, str], None]) -> None:
        self._log = log
        self._state, self._line, self._at = "", "", 0.0

    def __call__(self, application: Application, position: Position | None) -> None:
        """Log the state, if it is due."""
        state, line, now = describe_state(application), describe_state(application, position), time.monotonic()
        if state != self._state or (line != self._line and now - self._at > INTERVAL_SECONDS):
            self._log("%s", line)
            self._state, self._line, self._at = state, line, now


def describe_state(application: Application, position: Position | None = None) -> str:
    """Return the state of an application, without the figures and times in it that change at every poll.

    Args:
        application: The application.
        position: Its number among those that wait in its queue, and how many these are; None if it does not wait.
    """
    where = f", number {position[0]} of {position[1]} that wait in queue {application.queue}" if position else ""
    why = _CHANGING.sub("", application.diagnostics).strip()
    return f"{application.id} is {application.state}{where}{f': {why}' if why else ''}"
