"""The process that workers are forked from."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

USES_OF_CUDA = """
import torch

def fail(*_):
    raise SystemExit("CUDA was used, so that no worker that is forked later can use it")

torch._C._cuda_init = torch._C._cuda_getDeviceCount = torch.cuda._device_count_nvml = fail
"""
WITHOUT_PANDAS = "import sys; sys.modules['pandas'] = sys.modules['pyarrow'] = None"
IMPORT = "import sys, trainyard.trainer.group.daemon; print('torch._dynamo' in sys.modules)"


def run(program: str) -> str:
    environment = os.environ | {"PYTHONPATH": "plugins:."}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.slow
def test_its_imports_do_not_initialize_cuda_so_that_workers_can() -> None:
    assert run(f"{USES_OF_CUDA}\n{IMPORT}") == "True"


@pytest.mark.slow
def test_it_starts_on_a_node_that_has_only_what_a_script_needs() -> None:
    assert run(f"{WITHOUT_PANDAS}\n{IMPORT}") == "True"
