"""These tests run on a node without Spark and Airflow, and say what they did not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.full, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
ABSENT = (
    "pyspark", "airflow", "hypothesis", "tenacity", "torchmetrics", "pandas", "psutil", "requests", "jinja2", "rich",
    "pytest_timeout",
)  # fmt: skip
PROGRAM = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {ABSENT}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

    def invalidate_caches(self):
        pass

sys.meta_path.insert(0, Absent())
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in {ABSENT} else find_spec(name, package)
sys.path.insert(0, ".")
import pytest
status = pytest.main(sys.argv[1:])
assert not {{name for name in sys.modules if name in {ABSENT}[:3]}}
sys.exit(status)
"""


@pytest.mark.parametrize("device", ["cpu"], indirect=True)
def test_without_a_gpu_the_summary_says_what_was_not_run(device: str) -> None:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-c", PROGRAM, "tests/gpu", "-k", "every_precision or halve or flight", "-q"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT RUN: " in done.stdout and "because there is no CUDA device" in done.stdout
    assert "skipped" not in done.stdout
