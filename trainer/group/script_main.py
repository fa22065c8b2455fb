"""The process of a script: `python -uc "from trainyard.trainer.group.script_main import main; main(...)"`.

It imports torch while its worker meets the others, and then runs the module as `python -m` does, so that threads,
`atexit` and the exit status are those of a process of its own.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import signal
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.connections.clock import Offset
from trainyard.trainer.connections.process_group import end_process_group
from trainyard.trainer.group.outcome import Outcome, build_failure

STORE_TIMEOUT = timedelta(minutes=30)
"""As torch's default of a process group."""
CHECK_SECONDS = 0.2
_UNTIL_THE_END = ExitStack()
"""What stays in place as long as the process runs."""


@dataclass(frozen=True)
class Start:
    """What a script is started with, once its worker has met the others.

    Attributes:
        module: The script.
        arguments: Its command line.
        variables: Environment variables, beside those of the process.
        rank: The number of the worker.
        size: How many workers there are.
        driver: The driver, which serves the store of the process group.
    """

    module: str
    arguments: tuple[str, ...]
    variables: dict[str, str]
    rank: int
    size: int
    driver: DriverAddress

    def to_json(self) -> bytes:
        """Return the start as JSON, for the process of the script alone: it has the secret of the group."""
        secret = self.driver.secret.hex()
        return json.dumps(asdict(self) | {"driver": asdict(self.driver) | {"secret": secret}}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Start:
        """Return the start of `to_json`."""
        fields = json.loads(text)
        driver = fields.pop("driver")
        address = DriverAddress(driver["host"], driver["port"], bytes.fromhex(driver["secret"]))
        return cls(**fields | {"arguments": tuple(fields["arguments"]), "driver": address})


def main(lifeline: int, failure: str, grace_seconds: float) -> None:
    """Run the script that the worker names on standard input.

    Args:
        lifeline: The end of a pipe whose other end the worker has: the process ends with its worker.
        failure: Where an exception of the script is written.
        grace_seconds: How long it may run after a SIGTERM, if the worker has ended.
    """
    _guard(lifeline, os.getpid(), grace_seconds)
    with suppress(ImportError):
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))  # by default not more than the machine has cores
    text = sys.stdin.buffer.read()
    if not text:
        return  # the worker could not meet the others
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    start = Start.from_json(text)
    os.environ |= start.variables
    atexit.register(_clean_up, abort=False)  # the last one that is called
    _use_store(start)
    sys.argv = [start.module, *start.arguments]
    try:
        runpy._run_module_as_main(start.module, alter_argv=True)  # type: ignore[attr-defined]
    except SystemExit as end:
        if isinstance(end.code, str):
            _write(failure, Outcome(start.rank, "", 0, "failed", error=f"{start.module} ended: {end.code}"))
        elif end.code:
            _find_exit_mark(Path(failure)).write_text(str(end.code if isinstance(end.code, int) else 1))
        raise
    except BaseException as error:
        if isinstance(error, FileNotFoundError) and "." not in start.module:
            error.add_note(
                f"{start.module}.py is shipped alone, with the modules that it imports. Move it into a folder with the "
                f"files that it reads, and write script='FOLDER.{start.module}': such a folder is shipped whole."
            )
        _write(failure, build_failure(start.rank, error, Offset()))
        _clean_up(abort=True)
        raise


def read_failure(path: Path) -> Outcome | None:
    """Return the failure that a script has written to `path`, None if it has not raised an exception."""
    return Outcome(**json.loads(path.read_text())) if path.exists() else None


def has_failed(failure: Path) -> bool:
    """Return whether a script has failed by itself, although its process may run until it has cleaned up."""
    return failure.exists() or _find_exit_mark(failure).exists()


def read_exit_status(failure: Path) -> int | None:
    """Return the status with which a script has called `sys.exit`, None if it has not."""
    mark = _find_exit_mark(failure)
    return int(mark.read_text() or 1) & 0xFF if mark.exists() else None


def _find_exit_mark(failure: Path) -> Path:
    """Return the file with the exit status of a script that ends with another one than 0."""
    return failure.with_name("exits")


def _write(path: str, outcome: Outcome) -> None:
    Path(path).write_text(json.dumps(asdict(outcome)))


def _use_store(start: Start) -> None:
    """Let the script meet the others by the driver's store; a single worker needs none that listens."""
    from trainyard.trainer.connections import rendezvous

    store: Any
    if start.size > 1:
        from trainyard.trainer.connections.store import Store

        store = Store(start.driver, STORE_TIMEOUT)
    elif "torch" in sys.modules:
        from torch.distributed import HashStore  # type: ignore[attr-defined]

        store = HashStore()
    else:
        return
    _UNTIL_THE_END.enter_context(rendezvous.use_store(store, start.rank, start.size))


def _clean_up(abort: bool) -> None:
    end_process_group(abort)
    if (hvd := sys.modules.get("horovod.torch")) and hvd.is_initialized():
        hvd.shutdown()


def _guard(lifeline: int, script: int, grace_seconds: float) -> None:
    """Start a process that ends the script when its worker has ended, also by SIGKILL.

    It is no child of the script, which may wait for all of its children, and needs no lock of its interpreter.
    """
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        os.close(lifeline)
        return
    if os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    while not select.select([lifeline], [], [], CHECK_SECONDS)[0]:
        if not _send(script, 0):
            os._exit(0)
    deadline = time.monotonic() + grace_seconds
    _send(script, signal.SIGTERM)
    while _send(script, 0) and time.monotonic() < deadline:
        time.sleep(CHECK_SECONDS)
    _send(script, signal.SIGKILL)
    os._exit(0)


def _send(process: int, number: int) -> bool:
    """Send a signal, and return whether the process was there."""
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return False
    return True
