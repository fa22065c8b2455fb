"""Errors that are addressed to the user: what is wrong, where, and what to write instead."""

from __future__ import annotations

import re

_IN_WORKER = re.compile(
    r"^(?:[\w.]+\.)?TrainyardError: (?P<message>.+?)(?=\n\s*\n|\n\s+at |\n\s*SQLSTATE: |\Z)", re.M | re.S
)


class TrainyardError(Exception):
    """Something the user can put right; the message says all there is to say, no traceback needed."""


def reason(error: BaseException) -> str | None:
    """The message meant for the user inside `error`, or None when the failure is not one of ours.

    A `TrainyardError` raised in a Spark Python worker reaches the driver only as text inside the
    exception of the stage; the last one there is the cause.
    """
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, TrainyardError):
            return str(link)
        link = link.__cause__ or link.__context__
    found = _IN_WORKER.findall(str(error))
    return found[-1].strip() if found else None
