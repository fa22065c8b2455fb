"""The lines of a driver's log that are new."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.triggers import driver_log
from trainyard.triggers.driver_log import DriverLogReader
from trainyard.yarn.resource_manager import Application

RUNNING = Application("application_1_0001", "RUNNING", "UNDEFINED", "etl", "", "", 0.0)
Write = Callable[[bytes], list[str]]


def write_to(tail: int = 65536) -> Write:
    """Return a function that appends to stdout, and returns the lines that are new to a reader of its last bytes."""
    content = b""
    reader = DriverLogReader(lambda _, file: (len(content), content[-tail:]) if file == "stdout" else (0, b""))

    def write(more: bytes) -> list[str]:
        nonlocal content
        content += more
        return asyncio.run(reader.next_lines(RUNNING))

    return write


def test_a_line_is_returned_once_when_it_is_whole() -> None:
    write = write_to()
    assert [write(part) for part in (b"one\ntw", b"", b"o\nthree\n")] == [["one"], [], ["two", "three"]]


def test_records_of_spark_are_left_out() -> None:
    write = write_to()
    assert write(b"26/11/24 10:00:00 INFO SparkContext: started\n26/11/24 10:00:00 ERROR Task: lost\n") == [
        "26/11/24 10:00:00 ERROR Task: lost"
    ]


def test_what_is_too_long_for_one_request_is_told() -> None:
    write = write_to(tail=8)
    assert write(b"0123456789\nabcd\n") == ["[8 bytes of the driver's stdout are left out here]", "89", "abcd"]


@given(st.lists(st.text("ab\n", max_size=7)))
def test_the_lines_are_those_of_the_file_however_it_grows(parts: list[str]) -> None:
    write = write_to()
    found = [line for part in parts for line in write(part.encode())]
    assert found == [line for line in "".join(parts).split("\n")[:-1] if line]


def test_an_error_of_the_node_is_raised() -> None:
    def fail(application: Application, file: str) -> tuple[int, bytes]:
        raise OSError("no route to host")

    reader = DriverLogReader(fail)
    with pytest.raises(OSError, match="no route"):
        asyncio.run(reader.next_lines(RUNNING))
    assert asyncio.run(reader.next_lines(RUNNING)) == [], "the node is not asked again at once"


def test_lines_of_a_node_that_takes_long_to_answer_are_those_of_a_later_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that cannot reach the nodes waits for seconds, for each of many tasks."""
    monkeypatch.setattr(driver_log, "MAX_WAIT_SECONDS", 0.01)
    released = threading.Event()

    def read(application: Application, file: str) -> tuple[int, bytes]:
        released.wait(60)
        return (4, b"one\n") if file == "stdout" else (0, b"")

    async def poll() -> list[list[str]]:
        reader = DriverLogReader(read)
        early = [await reader.next_lines(RUNNING) for _ in range(2)]
        released.set()
        while not (lines := await reader.next_lines(RUNNING)):
            pass
        return [*early, lines]

    assert asyncio.run(poll()) == [[], [], ["one"]]
