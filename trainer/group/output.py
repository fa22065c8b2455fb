"""Print the output of each worker line by line, with its rank in front: the workers of a node share one log."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DRAIN_SECONDS = 2.0
"""How long the end of a script waits for its last lines: a process that it left behind may keep the pipe open."""


@contextmanager
def prefix_output(rank: int, last_lines: Path | None = None) -> Iterator[None]:
    """Put `[rankN]: ` in front of each line that this process and its children write, as torch does.

    A process of its own copies the lines, so the last ones of a worker that crashes are not lost. A line of up to 4 KiB
    is written at once; blank lines are left out.

    Args:
        rank: The number of the worker.
        last_lines: A file that gets the last lines at the end.
    """
    _flush()
    stdout, stderr = os.dup(1), os.dup(2)
    program = f"import os, sys\n{inspect.getsource(copy_lines)}\ncopy_lines(*sys.argv[1:])"
    copier = subprocess.Popen(  # noqa: S603  our own code
        [sys.executable, "-ISc", program, f"[rank{rank}]: ", str(last_lines or "")],
        stdin=subprocess.PIPE,
        stdout=stderr,
        stderr=stderr,
    )
    assert copier.stdin
    os.dup2(copier.stdin.fileno(), 1)
    os.dup2(copier.stdin.fileno(), 2)
    copier.stdin.close()
    try:
        yield
    finally:
        _flush()
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.close(stdout)
        os.close(stderr)
        with suppress(subprocess.TimeoutExpired):
            copier.wait(DRAIN_SECONDS)


def copy_lines(prefix: str, last_lines: str) -> None:
    """Copy lines from standard input to standard output; a line of more than 1 MiB is cut.

    It runs as a program of its own, with `os` and `sys` imported.

    Args:
        prefix: What is put in front of each line.
        last_lines: A file that gets the last 20 lines at the end; none if empty.
    """
    rest, is_open, last = b"", True, list[bytes]()
    while is_open:
        chunk = os.read(0, 1 << 16)
        is_open = bool(chunk)
        *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        if len(rest) > 1 << 20 or not is_open:
            lines, rest = [*lines, rest], b""
        for line in filter(None, lines):
            sys.stdout.buffer.write(prefix.encode() + line + b"\n")
            sys.stdout.buffer.flush()
            last = [*last[-19:], line[:1000]]
    if last_lines:
        with open(last_lines, "wb") as file:  # noqa: PTH123  pathlib is not imported
            file.write(b"\n".join(last))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with suppress(AttributeError, OSError, ValueError):  # none, or closed by the script
            stream.flush()  # type: ignore[union-attr]
