"""A progress bar of a training on the terminal, drawn by rich."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from trainyard.schemas.runs.worker_progress import ScriptProgress, TrainingProgress

if TYPE_CHECKING:
    from rich.progress import Progress

DRAW_SECONDS = 0.25
JOIN_SECONDS = 1.0
"""How long the end of the bar waits for its thread, which may wait for the storage."""
BAR_WIDTH = 16


class ProgressBar:
    """Show the progress of a training on the terminal while the body of a `with` runs.

    The bar is shown if standard error is a terminal and rich is installed; else nothing is done. A thread reads the
    progress and draws it, so the training does not wait. The first error of either ends the bar, and nothing else.
    Lines that this process writes to standard output and standard error meanwhile are written above the bar.

    Args:
        read: Returns the progress, or None before the training begins.
        read_seconds: The time between two calls of `read`.
        enabled: Whether to show the bar at all.
    """

    def __init__(
        self,
        read: Callable[[], TrainingProgress | ScriptProgress | None],
        read_seconds: float = DRAW_SECONDS,
        enabled: bool = True,
    ) -> None:
        self._read, self._read_seconds = read, read_seconds
        self._bar = _build_bar() if enabled else None
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._pauses = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress bar", daemon=True)
        self._redirections = ExitStack()

    def __enter__(self) -> Self:
        if self._bar:
            self._redirections.enter_context(_redirect_output(self))
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        if self._thread.ident:
            self._thread.join(JOIN_SECONDS)
        self._end()
        self._redirections.close()

    @property
    def is_active(self) -> bool:
        """Whether this process may draw the bar, now or later."""
        return self._bar is not None and os.getpid() == self._pid

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Remove the bar from the terminal while the body writes to it."""
        if not self.is_active:
            yield
            return
        with self._lock:  # the body runs without it: what writes may wait for locks of its own
            self._pauses += 1
            self._erase()
        try:
            yield
        finally:
            with self._lock:
                self._pauses -= 1

    def above(self, write: Callable[[str], None]) -> Callable[[str], None]:
        """Return a function that calls `write` with a line while the bar is removed from the terminal."""

        def write_above(line: str) -> None:
            with self.paused():
                write(line)

        return write_above

    def _run(self) -> None:
        progress, read_at = None, float("-inf")
        try:
            while not self._stopped.wait(DRAW_SECONDS):
                if time.monotonic() - read_at >= self._read_seconds:
                    progress, read_at = self._read(), time.monotonic()
                if isinstance(progress, TrainingProgress):  # the end of a script is not known
                    self._draw(progress)
        except Exception:  # the training does not depend on its bar
            self._end()

    def _draw(self, progress: TrainingProgress) -> None:
        with self._lock:
            if self._bar is None or self._pauses or self._stopped.is_set():
                return
            done = (progress.epoch - 1) * progress.steps + progress.step
            total = progress.epochs * progress.steps
            self._bar.update(
                self._bar.task_ids[0], completed=done, total=total, description=progress.describe(), visible=True
            )
            self._bar.start()
            self._bar.refresh()

    def _erase(self) -> None:
        """Remove the bar until it is drawn again."""
        try:
            if self._bar:
                self._bar.stop()
        except Exception:  # the terminal is gone
            self._bar = None

    def _end(self) -> None:
        """Remove the bar for good."""
        with self._lock:
            self._erase()
            self._bar = None


class _LineStream:
    """A stream that writes whole lines to another one, above a bar."""

    def __init__(self, stream: TextIO, bar: ProgressBar) -> None:
        self._stream, self._bar, self._rest = stream, bar, ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Write the lines that `text` completes, and keep the rest."""
        if not self._bar.is_active:
            self.write_rest()
            return self._stream.write(text)
        with self._lock:
            lines, newline, self._rest = (self._rest + text).rpartition("\n")
        if newline:
            with self._bar.paused():
                self._stream.write(lines + newline)
                self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """Write an incomplete line too, such as a question."""
        with self._lock:
            rest, self._rest = self._rest, ""
        with self._bar.paused():
            self._stream.write(rest)
            self._stream.flush()

    def write_rest(self) -> None:
        """Write an incomplete line."""
        if self._rest:
            self._stream.write(self._rest)
            self._rest = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _redirect_output(bar: ProgressBar) -> Iterator[None]:
    """Write what is written to standard output and standard error above the bar, unless it goes to a file.

    That includes handlers of the root logger that have one of these streams.
    """
    streams = {name: getattr(sys, name) for name in ("stdout", "stderr")}
    redirected = {name: _LineStream(stream, bar) for name, stream in streams.items() if _is_terminal(stream)}
    handlers = [
        (handler, name)
        for handler in logging.getLogger().handlers
        for name in redirected
        if isinstance(handler, logging.StreamHandler) and handler.stream is streams[name]
    ]
    for name, stream in redirected.items():
        setattr(sys, name, stream)
    for handler, name in handlers:
        handler.setStream(cast(TextIO, redirected[name]))
    try:
        yield
    finally:
        for name, stream in redirected.items():
            if getattr(sys, name) is stream:
                setattr(sys, name, streams[name])
            with suppress(OSError, ValueError):
                stream.write_rest()
        for handler, name in handlers:
            with suppress(OSError, ValueError):
                handler.setStream(streams[name])


def _is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal; programs may have replaced it, or closed it."""
    try:
        return bool(stream.isatty())
    except (AttributeError, OSError, ValueError):
        return False


def _build_bar() -> Progress | None:
    """Return a bar on standard error that is not drawn yet; None where it cannot be drawn."""
    if not _is_terminal(sys.stderr):
        return None
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
    except ImportError:
        return None
    console = Console(file=sys.stderr)
    if not console.is_interactive:  # TERM=dumb
        return None
    bar = Progress(
        BarColumn(BAR_WIDTH), TextColumn("{task.description}", markup=False), console=console, auto_refresh=False,
        transient=True, redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip
    bar.add_task("")
    return bar
