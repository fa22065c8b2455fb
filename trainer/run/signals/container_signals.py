"""Let the SIGTERM of a YARN container reach a worker.

YARN signals the process group of a container. pyspark's daemon, and so the workers that it forks, have left that group.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_FORWARD = 'trap "kill -TERM $0" TERM; echo; read -r _'
"""Send the first SIGTERM on to the process $0, until that one ends. A line says that it listens."""


@contextmanager
def forward_sigterm() -> Iterator[None]:
    """Forward the SIGTERM of the YARN container, if this process runs in one, to this process in the body.

    A shell in the process group of the container does it. That group is the one of the session's leader, which YARN
    has started as such.
    """
    if "CONTAINER_ID" not in os.environ:
        yield
        return
    try:
        command = ["sh", "-c", _FORWARD, str(os.getpid())]
        pipe = subprocess.PIPE
        shell = subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=os.getsid(0))  # noqa: S603
        assert shell.stdout
        shell.stdout.readline()
    except OSError as error:
        print(f"a SIGTERM of YARN does not reach this worker: {error}", flush=True)
        yield
        return
    with shell:
        try:
            yield
        finally:
            shell.kill()  # processes that were forked meanwhile may hold the pipe to it
