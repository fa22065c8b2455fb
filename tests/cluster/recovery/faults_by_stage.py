"""Cause all faults in all stages, several times each: `make faults`, hours.

Its table is for docs/explanation/durability.md.

A trial is clean if one application did the work in the end, and no other application or process is left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import ROOT, Shell
from tests.cluster.jobs import build_plan
from tests.cluster.recovery.faults import FAULTS, find_leftovers, kill_worker, run_with_fault
from trainyard.files import storage
from trainyard.jobs.operator import JobOperator
from trainyard.operators import EvaluateOperator, ExportOperator, PredictOperator, TrainOperator
from trainyard.planning.placement import Placement
from trainyard.text import table

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]

TRIALS = int(os.environ.get("TRIALS", "5"))
IMAGES: dict[str, Any] = {"format": "binaryFile", "options": {"recursiveFileLookup": "true"}}
STAGES: dict[str, Callable[..., JobOperator]] = {
    "export": lambda **task: ExportOperator(
        prepare="digits.prepare:images", source="digits/source", dataset=f"{task['task_id']}/dataset",
        shapes={"image": [1, 8, 8]}, **IMAGES, **task,
    ),
    "train": lambda **task: TrainOperator(
        recipe="digits.recipe:convnet", dataset="digits/dataset", model=f"{task['task_id']}/model", workers=2, epochs=3,
        placement=Placement(queue="train", node_label="gpu"), gpus_per_worker=1, **task,
    ),
    "evaluate": lambda **task: EvaluateOperator(
        model="digits/model", dataset="digits/dataset", split="test", metrics=["accuracy"], **task
    ),
    "predict": lambda **task: PredictOperator(
        model="digits/model", source={"path": "digits/source", **IMAGES}, prepare="digits.prepare:images", keys=["id"],
        output=f"{task['task_id']}/predictions", **task,
    ),
}  # fmt: skip
CASES = [(stage, fault) for stage in STAGES for fault in FAULTS] + [("train", "worker")]
Results = dict[tuple[str, str], list[float]]


@pytest.fixture(scope="module")
def pipeline(cluster: Cluster, shell: Shell) -> None:
    """Create a dataset and a model for the later stages."""
    process = shell("airflow dags test digits")
    assert process.returncode == 0, process.stdout[-6000:]


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    """The seconds of each clean trial; a table of them is written at the end."""
    results: Results = {}
    yield results
    rows = [[fault, *(_format_cell(results, stage, fault) for stage in STAGES)] for fault in [*FAULTS, "worker"]]
    Path(ROOT, ".run").mkdir(exist_ok=True)
    Path(ROOT, ".run", "faults.txt").write_text(table(["killed", *STAGES], rows) + "\n")


def _format_cell(results: Results, stage: str, fault: str) -> str:
    if (stage, fault) not in CASES:
        return "-"
    seconds = results.get((stage, fault), [])
    return f"{len(seconds)} of {TRIALS}" + (f", {max(seconds):.0f} s at most" if seconds else "")


@pytest.mark.parametrize("trial", range(TRIALS))
@pytest.mark.parametrize(("stage", "fault"), CASES)
def test_a_trial_is_clean(
    pipeline: None, configured: Cluster, results: Results, stage: str, fault: str, trial: int
) -> None:
    dag = DAG("trial", schedule=None)
    dag.fileloc = str(ROOT / "dags" / "digits" / "dag.py")
    plan = build_plan(STAGES[stage](task_id=f"{stage}-{fault}-{trial}", dag=dag), configured.storage)
    start = time.monotonic()
    run_with_fault(plan, configured, kill_worker if fault == "worker" else FAULTS[fault])
    assert find_leftovers(plan, configured) == []
    output = plan.job.spec.get("dataset" if stage == "export" else "model" if stage == "train" else "output")
    assert output is None or storage.exists(str(output))
    results.setdefault((stage, fault), []).append(time.monotonic() - start)
