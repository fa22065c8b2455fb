"""The environments of rows: virtual environments in the user's cache, by what is in them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stack.hadoop.jars import CACHE
from stack.matrix.results import summarize
from stack.matrix.rows import Row, merge_requirements

ROOT = Path(__file__).parents[2]
UV = Path(sys.prefix) / "bin" / "uv"
FILES = ("requirements", "requirements-dev")
RESERVE_GIGABYTES = 15
"""The disk that stays free for other work."""


class MissingEnvironmentError(Exception):
    """An environment cannot be made on this machine."""


def prepare_environment(row: Row, folder: Path) -> Path:
    """Return the environment of a row; make it if there is none with its packages.

    Args:
        row: The row.
        folder: The folder for the list of its packages.

    Raises:
        MissingEnvironmentError: There is no such Python, no packages fit together, or the disk is full.
    """
    if not row.packages and not row.added and not row.python:
        return Path(sys.prefix)
    python = row.python or sys.executable
    pyenv = {"PYENV_VERSION": row.python} if row.python else {}  # its shims run only a version that is chosen
    wanted = merge_requirements([(ROOT / f"{name}.in").read_text() for name in FILES], (*row.packages, *row.added))
    pinned = "".join((ROOT / f"{name}.txt").read_text() for name in FILES)
    requested = f"{wanted}{row.day}{' '.join(row.last)}"
    environment = CACHE / "matrix" / get_key(row.python or sys.version, requested, pinned)
    ready = environment / ".ready"
    if not ready.exists():
        if row.python:
            find_python(row.python)
        check_disk(shutil.disk_usage(ROOT).free, row.gigabytes)
        requirements, locked = folder / "requirements.in", folder / "requirements.txt"
        compiling = ("pip", "compile", "--no-header", "--no-annotate", "--python", python)
        if row.day:
            requirements.write_text("\n".join(row.packages))
            _run_uv(pyenv, *compiling, "--exclude-newer", row.day, str(requirements), "-o", str(locked))
            pinned = merge_requirements([pinned], locked.read_text().splitlines())
        requirements.write_text(wanted)
        # uv keeps the versions in the file that it writes, where the requirements allow them.
        locked.write_text(pinned)
        _run_uv(pyenv, *compiling, str(requirements), "-o", str(locked))
        _run_uv(pyenv, "venv", "--clear", "--python", python, str(environment))
        _run_uv(pyenv, "pip", "install", "--python", str(environment), "-r", str(locked))
        if row.last:
            _run_uv(pyenv, "pip", "install", "--python", str(environment), "--reinstall", "--no-deps", *row.last)
        ready.touch()
    return environment


def find_python(version: str) -> None:
    """Check that there is an interpreter of a version.

    Raises:
        MissingEnvironmentError: There is none.
    """
    try:
        _run_uv({"PYENV_VERSION": version}, "python", "find", version)
    except MissingEnvironmentError:
        raise MissingEnvironmentError(f"there is no Python {version} on this machine") from None


def check_disk(free: int, gigabytes: int) -> None:
    """Check that so many gigabytes of `free` bytes can be used.

    Raises:
        MissingEnvironmentError: The reserve would not be left.
    """
    if free < (gigabytes + RESERVE_GIGABYTES) << 30:
        raise MissingEnvironmentError(
            f"{free >> 30} GiB of disk are free; the environment takes {gigabytes}, and {RESERVE_GIGABYTES} stay free"
        )


def get_key(python: str, requirements: str, locked: str) -> str:
    """Return the name of the environment with this Python and these requirements, and the locked versions."""
    return hashlib.sha256(f"{python}\n{requirements}\n{locked}".encode()).hexdigest()[:12]


def _run_uv(variables: Mapping[str, str], *arguments: str) -> None:
    command = [str(UV), "-q", "--no-python-downloads", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    process = subprocess.run(
        command, cwd=ROOT, env=environment | dict(variables), check=False, capture_output=True, text=True
    )
    if process.returncode:
        raise MissingEnvironmentError(summarize_uv(process.stderr))


def summarize_uv(output: str) -> str:
    """Return the reason of a failure of uv in a line, without warnings and the marks of its tree."""
    lines: Sequence[str] = output.splitlines()
    starts = [number for number, line in enumerate(lines) if line.strip().startswith(("error:", "×"))]
    text = " ".join(lines[starts[0] :] if starts else lines)
    for mark in ("×", "╰─▶", "│", "error:"):
        text = text.replace(mark, " ")
    return summarize(" ".join(text.split()))
