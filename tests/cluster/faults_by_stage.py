"""All faults in all stages, several trials each: `make faults`, hours. Its table is for docs/faults.md.

A trial is clean when one application did the work in the end, whatever died, and nothing else is left.
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
from tests.cluster.faults import FAULTS, RANK, leftovers, survived
from tests.cluster.jobs import planned
from trainyard import storage
from trainyard.jobs.operator import JobOperator
from trainyard.operators import EvaluateOperator, ExportOperator, PredictOperator, TrainOperator
from trainyard.planning.placement import Placement
from trainyard.table import table

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]

TRIALS = int(os.environ.get("TRIALS", "5"))
IMAGES: dict[str, Any] = {"format": "image", "options": {"recursiveFileLookup": "true"}}
STAGES: dict[str, Callable[..., JobOperator]] = {
    "export": lambda **here: ExportOperator(
        prepare="digits.prepare:images", source="digits/source", dataset=f"{here['task_id']}/dataset",
        shapes={"image": [1, 8, 8]}, **IMAGES, **here,
    ),
    "train": lambda **here: TrainOperator(
        recipe="digits.recipe:convnet", dataset="digits/dataset", model=f"{here['task_id']}/model", workers=2, epochs=3,
        placement=Placement(queue="train", node_label="gpu", gpus_per_worker=1), **here,
    ),
    "evaluate": lambda **here: EvaluateOperator(
        model="digits/model", dataset="digits/dataset", split="test", metrics=["accuracy"], **here
    ),
    "predict": lambda **here: PredictOperator(
        model="digits/model", source={"path": "digits/source", **IMAGES}, prepare="digits.prepare:images", keys=["id"],
        output=f"{here['task_id']}/predictions", **here,
    ),
}  # fmt: skip
TRIED = [(stage, fault) for stage in STAGES for fault in FAULTS] + [("train", "rank")]
Results = dict[tuple[str, str], list[float]]


@pytest.fixture(scope="module")
def pipeline(cluster: Cluster, shell: Shell) -> None:
    """Batches and a model for the later stages."""
    done = shell("airflow dags test digits")
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    """Seconds of each clean trial; a table of them is written in the end."""
    found: Results = {}
    yield found
    rows = [[fault, *(_cell(found, stage, fault) for stage in STAGES)] for fault in [*FAULTS, "rank"]]
    Path(ROOT, ".run").mkdir(exist_ok=True)
    Path(ROOT, ".run", "faults.txt").write_text(table(["killed", *STAGES], rows) + "\n")


def _cell(found: Results, stage: str, fault: str) -> str:
    if (stage, fault) not in TRIED:
        return "-"
    seconds = found.get((stage, fault), [])
    return f"{len(seconds)} of {TRIALS}" + (f", {max(seconds):.0f} s at most" if seconds else "")


@pytest.mark.parametrize("trial", range(TRIALS))
@pytest.mark.parametrize(("stage", "fault"), TRIED)
def test_a_trial_is_clean(
    pipeline: None, configured: Cluster, results: Results, stage: str, fault: str, trial: int
) -> None:
    dag = DAG("trial", schedule=None)
    dag.fileloc = str(ROOT / "dags" / "digits" / "dag.py")
    plan = planned(STAGES[stage](task_id=f"{stage}-{fault}-{trial}", dag=dag), configured.storage)
    began = time.monotonic()
    survived(plan, configured, RANK if fault == "rank" else FAULTS[fault])
    assert leftovers(plan, configured) == []
    product = plan.spec.get("dataset" if stage == "export" else "model" if stage == "train" else "output")
    assert product is None or storage.exists(str(product))
    results.setdefault((stage, fault), []).append(time.monotonic() - began)
