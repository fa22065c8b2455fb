"""Start a script as a process of its own, in a folder of its own, and end it."""

from __future__ import annotations

import importlib.util
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from trainyard.errors import TrainyardError
from trainyard.trainer.group.outcome import Outcome
from trainyard.trainer.group.script_main import CHECK_SECONDS, Start, has_failed, read_exit_status, read_failure

CODE = "from trainyard.trainer.group.script_main import main; main({lifeline}, {failure!r}, {grace_seconds})"

FAILURE = "failure.json"
"""The file that has what the process writes of its failure."""


class Program(NamedTuple):
    """Where a script is.

    Attributes:
        root: The folder that its modules are imported from; None where it is installed.
        folder: Its own folder, whose modules it imports as well; None where it is not found.
    """

    root: Path | None
    folder: Path | None


def unpack(script: str, folder: Path) -> Program:
    """Unpack the archive that a script was shipped in, so that it finds the files beside it.

    Args:
        script: The module.
        folder: Where the archive is unpacked. A script that is not in an archive stays where it is.
    """
    with suppress(ModuleNotFoundError):
        if (found := importlib.util.find_spec(script)) and found.origin:
            origin = Path(found.origin)
            archive = next((path for path in origin.parents if path.is_file()), None)
            if archive is None:
                return Program(None, origin.parent)
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(folder)
            return Program(folder, folder / origin.relative_to(archive).parent)
    return Program(None, None)


class ScriptProcess:
    """The process of a script; `run` creates it.

    Args:
        process: The process.
        folder: A folder of its own.
        grace_seconds: How long it may run after a SIGTERM.

    Attributes:
        folder: The folder, for what the process and its worker exchange.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, grace_seconds: float) -> None:
        self._process, self.folder, self._grace_seconds = process, folder, grace_seconds
        self._module, self._stopped_at = "", math.inf
        self._was_ended = self._was_stopped = False

    @property
    def _failure(self) -> Path:
        return self.folder / FAILURE

    def start(self, start: Start) -> None:
        """Start the script in the process, which has imported torch meanwhile."""
        self._module = start.module
        assert self._process.stdin
        with suppress(BrokenPipeError):  # it has ended
            self._process.stdin.write(start.to_json())
            self._process.stdin.close()

    def wait(self, should_end: Callable[[], bool], silence_seconds: float = math.inf) -> bool:
        """Wait until the process has ended, and return whether it was told to.

        Args:
            should_end: Whether the script has to end: it gets a SIGTERM, and a SIGKILL some time after it. One that
                has failed by itself, and cleans up, gets no SIGTERM, and counts as failed: others may have noticed its
                closed connections before its failure is reported.
            silence_seconds: How long the process may be stopped, as by SIGSTOP, until it is killed.
        """
        deadline = None
        while True:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(CHECK_SECONDS)
                return self._was_ended
            ends = should_end()  # also while it ends: this reads what it reports
            if deadline is None and ends:
                self._was_ended = not has_failed(self._failure)
                if self._was_ended:
                    self._process.terminate()
                deadline = time.monotonic() + self._grace_seconds
            elif deadline and time.monotonic() > deadline:
                self._process.kill()
            elif self._find_seconds_stopped() > silence_seconds:
                self._was_stopped = True
                self._process.kill()

    def _find_seconds_stopped(self) -> float:
        """Return for how long the process has been stopped by a signal."""
        changes = os.WSTOPPED | os.WCONTINUED | os.WNOHANG
        with suppress(ChildProcessError):
            if change := os.waitid(os.P_PID, self._process.pid, changes):
                self._stopped_at = time.monotonic() if change.si_code == os.CLD_STOPPED else math.inf
        return time.monotonic() - self._stopped_at

    @property
    def has_complete_files(self) -> bool:
        """Whether the ended process was not interrupted while it wrote files.

        It has ended by itself with exit status 0, or handled the SIGTERM that it got; it has not died of a signal or an
        exception.
        """
        status = self._process.returncode
        return status == 0 or (self._was_ended and status > 0 and not self._failure.exists())

    def find_failure(self, last_output: str) -> Outcome | None:
        """Return how the process has failed, None if its exit status is 0. Rank, host and time are left out.

        Args:
            last_output: The end of its output.
        """
        status = self._process.returncode
        if status == 0:
            return None
        if status < 0 and not self._was_ended:  # it was killed while it cleaned up, perhaps
            status = read_exit_status(self._failure) or status
        if failure := read_failure(self._failure):
            return failure
        if self._was_stopped:
            return Outcome(0, "", 0, "lost", error=f"the process of {self._module} was stopped, as by SIGSTOP")
        output = f". The end of its output:\n{last_output}" if last_output else "; its output is in the log"
        if status < 0:
            killed = f"its process was killed by {signal.Signals(-status).name}, perhaps for memory, or crashed"
            return Outcome(0, "", 0, "lost", error=f"{self._module} ended without an error: {killed}{output}")
        return Outcome(0, "", 0, "failed", error=f"{self._module} ended with exit status {status}{output}")


@contextmanager
def run(script: str, cwd: str | None, cores: int, grace_seconds: float) -> Iterator[ScriptProcess]:
    """Yield the process of a script, which waits for its start. At the end it is killed, if it still runs.

    Args:
        script: The module.
        cwd: Its working directory, relative to the folder of the shipped code; its own folder if None.
        cores: The cores of the worker, which are its threads: torch reads their number when it is imported.
        grace_seconds: How long it may run after a SIGTERM.

    Raises:
        TrainyardError: The working directory does not exist.
    """
    with tempfile.TemporaryDirectory(prefix="trainyard-script-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        program = unpack(script, folder / "code")
        directory = (program.root or folder) / cwd if cwd else program.folder if program.root else folder
        assert directory
        if not directory.is_dir():
            raise TrainyardError(f"cwd={cwd!r} is no folder on this node; write one beside the script, or leave it out")
        own = [str(path) for path in (program.folder, program.root) if path]
        paths = [*own, *(path for path in sys.path if path and not _is_of_interpreter(path))]
        lifeline, kept = os.pipe()
        code = CODE.format(lifeline=lifeline, failure=str(folder / FAILURE), grace_seconds=grace_seconds)
        process = subprocess.Popen(  # noqa: S603  our own code
            [sys.executable, "-uc", code], stdin=subprocess.PIPE, cwd=directory, pass_fds=[lifeline],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "OMP_NUM_THREADS": str(cores)},
        )  # fmt: skip
        os.close(lifeline)
        try:
            yield ScriptProcess(process, folder, grace_seconds)
        finally:
            process.kill()
            process.wait()
            os.close(kept)


def _is_of_interpreter(path: str) -> bool:
    """Return whether any process of this interpreter has a path of modules."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    return any(Path(path).is_relative_to(prefix) for prefix in prefixes)
