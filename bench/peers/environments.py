"""The environments of the systems: virtual environments in the user's cache, by the versions in them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers.systems import ROOT, System
from stack.hadoop.jars import CACHE

REQUIREMENTS = Path(__file__).parent / "requirements"
UV = Path(sys.prefix) / "bin" / "uv"
RESERVE_GIGABYTES = 25
"""The disk that stays free for other work."""


class MissingEnvironmentError(Exception):
    """An environment cannot be made on this machine."""


def prepare(system: System) -> Path:
    """Return the environment of a system; make it if there is none with its versions.

    The environment of a system without requirements is that of the checkout.

    Raises:
        MissingEnvironmentError: The disk is full, or packages cannot be installed.
    """
    requirements = REQUIREMENTS / f"{system.job}.txt"
    if not requirements.exists():
        return Path(sys.prefix)
    folder = CACHE / "peers" / f"{system.job}-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]}"
    ready = folder / ".ready"
    if not ready.exists():
        if shutil.disk_usage(ROOT).free < RESERVE_GIGABYTES << 30:
            raise MissingEnvironmentError(f"less than {RESERVE_GIGABYTES} GiB of disk are free")
        _run(str(UV), "-q", "--no-python-downloads", "venv", "--clear", "--python", sys.executable, str(folder))
        _run(str(UV), "-q", "pip", "install", "--python", str(folder), "-r", str(requirements))
        if system.job == "horovod":
            _run("bash", str(ROOT / "stack/horovod/install.sh"), str(folder))
        ready.touch()
    return folder


def read_versions(environment: Path, packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of packages in an environment."""
    program = "import sys, importlib.metadata as m; print(*(m.version(name) for name in sys.argv[1:]))"
    command = [str(environment / "bin" / "python"), "-c", program, *packages]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return dict(zip(packages, output.split(), strict=True))


def _run(*command: str) -> None:
    variables = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    process = subprocess.run(command, cwd=ROOT, env=variables, check=False, capture_output=True, text=True)
    if process.returncode:
        raise MissingEnvironmentError((process.stderr.strip().splitlines() or ["no output"])[-1])
