"""A user's script under torchrun, which calls fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.runs import get_losses

SCRIPT = """
import json, sys
from trainyard.trainer import fit

batches, folder = sys.argv[1:]
fitted = fit(
    "tests.trainer.recipes:linear", dataset=batches, model=f"{folder}/model", checkpoints=f"{folder}/checkpoints",
    strategy={"name": "averaging", "frequency": 1}, epochs=2, batch_size=40,
)
if fitted.artifact:
    print("RESULT" + json.dumps(fitted.history.epochs))
"""


SEVERAL = """
import sys
import torch.distributed as dist
from trainyard.trainer import fit

batches, folder, own_group = sys.argv[1:]
if own_group == "True":
    dist.init_process_group("gloo")
for number in range(4):
    fitted = fit(
        "tests.trainer.recipes:linear", dataset=batches, model=f"{folder}/model", epochs=1, batch_size=40,
        recipe_params={"learning_rate": 0.1 * number},
    )
    assert "bytes_per_step" in fitted.metrics
    assert dist.is_initialized() == (own_group == "True")
"""
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]


def run(launcher: list[str], script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *launcher, str(script), *arguments],
        env={"PYTHONPATH": "plugins:.", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.mark.full
@pytest.mark.ranks
def test_a_script_trains_on_the_workers_that_torchrun_starts(batches: str, tmp_path: Path) -> None:
    results = {}
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    for name, launcher in [("one", []), ("two", TORCHRUN)]:
        process = run(launcher, script, batches, str(tmp_path / name))
        assert process.returncode == 0, process.stderr[-3000:]
        (results[name],) = [line for line in process.stdout.splitlines() if line.startswith("RESULT")]
    one, two = (json.loads(results[name].removeprefix("RESULT")) for name in ("one", "two"))
    assert get_losses(two) == pytest.approx(get_losses(one), rel=1e-5)
    assert "bytes_per_step" in two[0] and "bytes_per_step" not in one[0]


@pytest.mark.full
@pytest.mark.ranks
@pytest.mark.parametrize("own_group", [False, True])
def test_a_script_trains_several_times(batches: str, tmp_path: Path, own_group: bool) -> None:
    """In a process group of each training, or in that of the script, which stays."""
    script = tmp_path / "script.py"
    script.write_text(SEVERAL)
    process = run(TORCHRUN, script, batches, str(tmp_path), str(own_group))
    assert process.returncode == 0, process.stderr[-3000:]
