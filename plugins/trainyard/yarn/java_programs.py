"""Run the programs of this folder that need Hadoop's Java classes, each in a process that ends with its JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from trainyard.errors import TrainyardError
from trainyard.planning.runtime import spark_environment

SECONDS = 120
FOLDER = Path(__file__).parent


def run(name: str, *arguments: str, failure: str) -> str:
    """Return what a program prints.

    Args:
        name: The file of the program.
        arguments: Its command line.
        failure: The beginning of the error, when it fails or does not end in time.

    Raises:
        TrainyardError: It failed, or did not end in two minutes.
    """
    command = [sys.executable, str(FOLDER / name), *arguments]
    env = os.environ | spark_environment()
    try:
        # The programs are ours.
        done = subprocess.run(  # noqa: S603
            command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TrainyardError(f"{failure} in {error.timeout:.0f} s.") from None
    if done.returncode:
        raise TrainyardError(f"{failure}: {done.stderr.strip()[-500:]}")
    return done.stdout
