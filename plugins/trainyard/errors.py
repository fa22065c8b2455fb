"""The error that is addressed to the user."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

_IN_SPARK_WORKER = re.compile(
    r"(?:^(?:[\w.]+\.)?|\[USER_RAISED_EXCEPTION\] )TrainyardError: "
    r"(?P<message>.+?)(?=\n\s*\n|\n\s+at |\n\s*SQLSTATE: | SQLSTATE: P0001|\Z)",
    re.M | re.S,
)
_JAVA_FRAME = re.compile(r"^\s+at [\w.$<>/]+\(|^\s*\.\.\. \d+ (?:common frames omitted|more)$")
_JAVA_CALL = "An error occurred while calling "
_JAVA_CAUSE = re.compile(r"^(?:Caused by: |: )([\w.$]+(?:Exception|Error)\w*): (.+)$", re.M)
_CONDITION = re.compile(r"\[([A-Z][A-Z_]+(?:\.[A-Z_]+)*)\] ")
_READ_FILE = re.compile(r"(?:while reading file|Could not read footer for file:?) (\S+?)\.?(?:\s|$)")
_LINE_END = re.compile(r"\n|\\n")
"""Also as an error shows the text of another one."""


class TrainyardError(Exception):
    """An error that the user can fix. The message says what is wrong and what to do; no traceback is needed."""


class ArgumentError(TrainyardError):
    """An argument of a command is not valid."""


class UnavailableError(TrainyardError):
    """Something that the task needs is not available now: a storage, a ResourceManager, a ticket. It may be later."""


class StorageError(UnavailableError, OSError):
    """A storage failed. It is an OSError too, as errors of other storages are."""


class DeadlineError(StorageError, TimeoutError):
    """A call did not return in time. Another attempt, by another connection, may succeed."""


def summarize(error: BaseException | None) -> str:
    """Return the type and the message of an error in one line, without a stack of Java in it."""
    return _LINE_END.split(f"{type(error).__name__}: {error}", maxsplit=1)[0]


def reason(error: BaseException) -> str | None:
    """Return the message for the user inside an error, or None if there is none.

    A TrainyardError that a Spark Python worker or Spark's own `raise_error` raises reaches the driver only as text
    inside the exception of the stage; the last one in that text is the cause.
    """
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, TrainyardError):
            return str(link)
        link = link.__cause__ or link.__context__
    messages = _IN_SPARK_WORKER.findall(str(error))
    return messages[-1].strip() if messages else None


def find_java_cause(text: str) -> str | None:
    """Return the cause in the text of an error of Java: the last one, with its condition and the file that was read.

    Returns:
        One line; None if the text is no error of Java, or the cause is Python code.
    """
    causes = _JAVA_CAUSE.findall(text)
    if _JAVA_CALL not in text or not causes or any("PythonException" in kind for kind, _ in causes):
        return None
    kind, message = causes[-1]
    named = _CONDITION.findall(text)[:1]
    file = _READ_FILE.search(text)
    if file and file[1].rpartition("/")[2] not in message:
        named.append(f"while reading {file[1]}")
    return f"{kind.rpartition('.')[2]}: {message}" + (f" ({', '.join(named)})" if named else "")


def without_java(text: str) -> str:
    """Return a text without the frames of stacks of Java, and without blank lines."""
    return "\n".join(line for line in text.splitlines() if line.strip() and not _JAVA_FRAME.match(line))


@contextmanager
def noted(unreadable: dict[str, str] | None, name: str) -> Iterator[None]:
    """End the `with` at an error, and add to `unreadable` why what is called `name` cannot be read; raise for None."""
    try:
        yield
    except Exception as error:  # each file system raises exceptions of its own
        if unreadable is None:
            raise
        unreadable[name] = summarize(error)
