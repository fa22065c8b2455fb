"""Programs on a real pseudo terminal, whose screen is an emulated one."""

from __future__ import annotations

import os
import pty
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence

import pyte

LINES = 12


class Terminal:
    """A program whose standard output and standard error are one terminal; its standard input is a pipe.

    Args:
        command: The program and its arguments.
        environment: Its environment.
        columns: The width of the terminal.
        stdout: A file descriptor for the standard output instead of the terminal.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], columns: int, stdout: int | None = None
    ) -> None:
        self._columns = columns
        self._screen = pyte.HistoryScreen(columns, LINES, history=10_000)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (LINES, columns))
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=slave if stdout is None else stdout, stderr=slave
        )
        os.close(slave)

    def read_until(self, is_shown: Callable[[list[str]], bool]) -> None:
        """Read what the program writes until the screen is as expected."""
        while not is_shown(self.lines):
            if not self._read():
                raise AssertionError("\n".join(self.lines))

    def resume(self) -> None:
        """Let the program return from `wait`."""
        assert self.process.stdin
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self) -> list[str]:
        """Wait for the end of the program, and return all lines that are left on the terminal."""
        while self._read():
            pass
        os.close(self._master)
        assert self.process.wait() == 0, self.lines
        return self.lines

    @property
    def lines(self) -> list[str]:
        """The lines on the terminal that are not empty, including those that have scrolled away."""
        history = ["".join(line[column].data for column in range(self._columns)) for line in self._screen.history.top]
        return [line for line in (text.rstrip() for text in [*history, *self._screen.display]) if line]

    def _read(self) -> bool:
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # Linux says so when the last writer has closed the terminal
            return False
        self._stream.feed(data)
        return bool(data)
