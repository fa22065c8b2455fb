"""Run a job from the gateway of a test bed, with retries as Airflow has them, and print what came of it as JSON.

    python -m tests.cluster.hosts.job export|train|end HADOOP FOLDER NAME

HADOOP is the folder of the cluster, FOLDER one that all hosts share, and NAME names the model of a training. `end`
kills all applications.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import ROOT, kill_all, list_applications
from tests.cluster.jobs import Exports, build_plan, run_to_end
from trainyard.errors import TrainyardError
from trainyard.files import uris
from trainyard.operators import TrainOperator
from trainyard.planning.placement import Placement
from trainyard.planning.plan import Plan
from trainyard.planning.sizing import Memory
from trainyard.schemas.runs import events

ATTEMPTS = 3
EPOCHS = 6
ROWS = """
    from pyspark.sql import functions as F

    def rows(spark, source):
        label = (F.col("id") % 3).alias("label")
        return spark.range(600).select(F.array(F.col("id") / 600.0, F.lit(1.0)).cast("array<float>").alias("x"), label)
"""


def build_training(root: str, folder: Path, name: str) -> Plan:
    """Return the plan of a training of two workers, each on a node of its own."""
    dag = DAG(name, schedule=None)
    dag.fileloc = str(ROOT / "tests" / "cluster" / "dags" / "steps" / "dag.py")
    operator = TrainOperator(
        task_id="train", dag=dag, recipe="steps.recipe:network", recipe_params={"folder": str(folder / name)},
        dataset=uris.join(root, "dataset"), model=name, workers=2, epochs=EPOCHS, batch_size=10,
        memory=Memory(heap="512m", native="2g"), placement=Placement(queue="train", node_label="gpu"),
        gpus_per_worker=2,
    )  # fmt: skip
    return build_plan(operator, root)


def run(plan: Plan) -> dict[str, Any]:
    """Run a plan until it succeeds; return its errors before, and its output."""
    errors = []
    for _ in range(ATTEMPTS):
        try:
            record = run_to_end(plan, log)
        except TrainyardError as error:
            errors.append(str(error))
            continue
        if record.status == "succeeded":
            return {"errors": errors, "output": record.output, "ended": time.time()}
        errors.append(str(record.error))
    return {"errors": errors}


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def describe(cluster: Cluster, plan: Plan) -> dict[str, Any]:
    """Return the applications of a training, and its events, with times in seconds."""
    recorded = [
        [event["ts"] / 1e6, event.get("dur", 0) / 1e6, event["name"], event["args"]]
        for event in events.read(plan.job.task_key.directory)
        if event["ph"] in "Xi"
    ]
    return {
        "states": [[app["state"], app["finalStatus"]] for app in list_applications(cluster, plan.tag)],
        "events": sorted(recorded, key=lambda event: event[0]),
    }


def main() -> None:
    job, home, folder, name = sys.argv[1:]
    cluster = Cluster.open(Path(home))
    os.environ.update(cluster.build_environment())
    root = cluster.storage
    result: dict[str, Any] = {}
    if job == "end":
        kill_all(cluster)
    elif job == "export":
        result = run(Exports(Path(folder), root).plan(ROWS))
    else:
        plan = build_training(root, Path(folder), name)
        result = run(plan)
        if "output" in result:
            result |= describe(cluster, plan)
    print(json.dumps(result, default=str))


if __name__ == "__main__":
    main()
