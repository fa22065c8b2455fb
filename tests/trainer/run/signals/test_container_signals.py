"""The SIGTERM of a YARN container reaches a worker, which has left the process group of the container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.planning.shipping import archive
from trainyard.yarn.settings import SIGTERM

WORKER = """
import os, sys, time
os.setpgid(0, 0)  # as pyspark's daemon
from trainyard.trainer.run.signals.control_sync import Termination
with Termination() as termination:
    print("started", flush=True)
    deadline = time.monotonic() + 60
    while not termination.requested and time.monotonic() < deadline:
        time.sleep(0.01)
print(termination.requested, flush=True)
"""
EXECUTOR = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: None)  # as a Java that is decommissioned
subprocess.run([sys.executable, "-c", sys.argv[1]])
"""


@pytest.fixture
def container(tmp_path: Path) -> subprocess.Popen[str]:
    """A process tree like that of an executor: a bash that leads a session, Java, and a worker."""
    script = tmp_path / SIGTERM.name
    script.write_bytes(SIGTERM.read_bytes())
    python = Path(archive.__file__).parents[3]
    environment = os.environ | {
        "CONTAINER_ID": "container_1",
        "BASH_ENV": f"./{SIGTERM.name}",
        "PYTHONPATH": str(python),
    }
    command = ["/bin/bash", "-c", '"$0" -c "$1" "$2" 2>&1', sys.executable, EXECUTOR, WORKER]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=tmp_path, env=environment
    )


@pytest.mark.slow
def test_a_sigterm_of_the_container_reaches_its_worker_and_the_container_lives_until_the_worker_ends(
    container: subprocess.Popen[str],
) -> None:
    with container:
        assert container.stdout
        assert container.stdout.readline() == "started\n"
        os.killpg(container.pid, signal.SIGTERM)
        assert container.stdout.read() == "True\n"
        assert container.wait(60) >= 0, "the SIGTERM has not ended the session's leader"


@pytest.mark.slow
def test_a_process_that_a_worker_has_forked_does_not_keep_it_from_its_end() -> None:
    """As the processes of a DataLoader that an error's traceback keeps alive."""
    program = """
import os, time
from trainyard.trainer.run.signals.control_sync import Termination
with Termination():
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
print("ended", flush=True)
os.killpg(0, 9)
"""
    environment = os.environ | {"CONTAINER_ID": "container_1", "PYTHONPATH": str(Path(archive.__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True,
        timeout=50,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("ended\n", -signal.SIGKILL)
