"""How much of what a pipeline holds of a cluster is busy, stage by stage, and what one application would have held.

    . stack/local/env.sh && PYTHONPATH=plugins:.:dags python bench/busy.py [--epochs 400] [--width 160] [--strategy S]

The digits DAG on a Hadoop of its own, by the ledger that Airflow's pages show: the ResourceManager's resource-seconds
against the time in which ranks compute. Below it is what training's time went into.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from stack.hadoop.cluster import Cluster
from trainyard import storage
from trainyard.schemas import run_record
from trainyard.table import table
from trainyard.usage import resource_usage, usage_report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--width", type=int, default=160, help="of the network: how much a step computes")
    parser.add_argument("--strategy", default="allreduce")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Cluster.running(Path(folder, "hadoop")) as cluster:
        os.environ.update(cluster.environment())
        given = vars(chosen) | {"batch_size": 256}
        command = ["airflow", "dags", "test", "digits", "-c", json.dumps(given)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        show(storage.join(cluster.storage, "runs", "digits"))


def show(runs: str) -> None:
    directory = storage.join(runs, storage.list_names(runs)[-1])
    held = resource_usage.read_run(directory)
    entries = [usage_report.application_usage(one) for one in held]
    rows = [
        [one.task, *(f"{hours * 60:.1f}" for hours in (one.ended - one.began, one.allocated.gpus)), _share(one)]
        for one in entries
    ]
    print(table(["stage", "minutes", "GPU minutes", "busy of allocated"], rows))
    whole = usage_report.sum_runs("run", [usage_report.RunUsage("digits", directory, tuple(entries))])
    assert whole.single_application
    gpus, cores = (
        whole.single_application.gpus / whole.allocated.gpus,
        whole.single_application.cores / whole.allocated.cores,
    )
    print(f"\nthe run: {_share(whole)} busy; one application would have held {gpus:.2f} x GPUs, {cores:.2f} x cores")
    print(table(["of training", "share"], _phases(next(one for one in held if one.task_key.task == "train"))))


def _phases(training: resource_usage.ResourceUsage) -> list[list[str]]:
    """What an average rank did while the application held its containers; starting and ending it is the rest."""
    found = run_record.read_latest(training.task_key)
    assert found
    spent: dict[str, float] = found.output["seconds"]
    shares = spent | {"start and end": training.seconds - sum(spent.values())}
    longest = sorted(shares.items(), key=lambda share: -share[1])
    return [
        [f"{name}{', idle' * (name in resource_usage.WAITING)}", f"{s / training.seconds:.3f}"] for name, s in longest
    ]


def _share(held: usage_report.ApplicationUsage | usage_report.UsageLine) -> str:
    return f"{held.busy.cores / held.allocated.cores:.3f}"


if __name__ == "__main__":
    main()
