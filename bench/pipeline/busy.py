"""Measure how much of the resources that a pipeline allocates is busy, stage by stage.

    . stack/local/env.sh && PYTHONPATH=plugins:.:dags \
        python bench/pipeline/busy.py [--epochs 400] [--width 160] [--strategy S]

Runs the digits DAG on its own Hadoop and prints the usage report that Airflow's pages show: the ResourceManager's
resource-seconds, the time in which workers compute, and what the pipeline would have allocated as a single Spark
application. The second table has the phases of training.
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
from trainyard.files import storage, uris
from trainyard.schemas.runs import run_record
from trainyard.schemas.runs.phases import computes
from trainyard.text import table
from trainyard.usage import resource_usage, usage_report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--width", type=int, default=160, help="width of the network, for longer or shorter steps")
    parser.add_argument("--strategy", default="allreduce")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Cluster.launch(Path(folder, "hadoop")) as cluster:
        os.environ.update(cluster.build_environment())
        conf = vars(args) | {"batch_size": 256}
        command = ["airflow", "dags", "test", "digits", "-c", json.dumps(conf)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        print_usage(uris.join(cluster.storage, "runs", "digits"))


def print_usage(runs: str) -> None:
    directory = uris.join(runs, storage.list_names(runs)[-1])
    usages = resource_usage.read_run(directory)
    entries = [usage_report.convert_usage(usage) for usage in usages]
    rows = [
        [e.task, *(f"{hours * 60:.1f}" for hours in (e.end - e.start, e.allocated.gpus)), _busy_fraction(e)]
        for e in entries
    ]
    print(table(["stage", "minutes", "GPU minutes", "busy of allocated"], rows))
    total = usage_report.sum_runs("run", [usage_report.RunUsage("digits", directory, tuple(entries))])
    assert total.baseline
    gpus = total.baseline.gpus / total.allocated.gpus
    cores = total.baseline.cores / total.allocated.cores
    baseline = f"one application would have allocated {gpus:.2f} x GPUs, {cores:.2f} x cores"
    print(f"\nthe run: {_busy_fraction(total)} busy; {baseline}")
    training = next(usage for usage in usages if usage.task_key.task == "train")
    print(table(["of training", "share"], _list_phases(training)))


def _list_phases(training: resource_usage.ResourceUsage) -> list[list[str]]:
    """Return the share of each phase of an average worker; the rest is the start and the end of the application."""
    record = run_record.read_latest(training.task_key)
    assert record
    phases: dict[str, float] = record.output["seconds"]
    shares = phases | {"start and end": training.seconds - sum(phases.values())}
    longest = sorted(shares.items(), key=lambda share: -share[1])
    return [[f"{name}{', idle' * (not computes(name))}", f"{s / training.seconds:.3f}"] for name, s in longest]


def _busy_fraction(usage: usage_report.ApplicationUsage | usage_report.UsageLine) -> str:
    return f"{usage.busy.cores / usage.allocated.cores:.3f}"


if __name__ == "__main__":
    main()
