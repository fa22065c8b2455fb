"""The program by which a container accesses the storage runs with the code that it brings, and nothing else of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.clusters.yarn import probe

pytestmark = pytest.mark.slow


def access(folder: Path, uri: str) -> subprocess.CompletedProcess[str]:
    program = probe.build_access_program([uri])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([sys.executable, "-c", program], cwd=folder, env=environment, text=True, capture_output=True)


def test_a_directory_is_written_and_read(tmp_path: Path) -> None:
    done = access(tmp_path, (tmp_path / "storage").as_uri())
    assert (done.returncode, done.stderr) == (0, "")


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = access(tmp_path, f"{tmp_path.as_uri()}/file/storage")
    assert done.returncode == 1 and done.stderr.startswith(f"{tmp_path.as_uri()}/file/storage: FileExistsError: ")
