"""Measure how long a script takes from the start of its group to its first line after `import torch`.

    PYTHONPATH=plugins:. python -m bench.training.script_start [--rounds 9]

One worker of a local master, whose Python workers are forked from the daemon of jobs; the first round is left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.trainer.group import script


def main() -> None:
    from pyspark.sql import SparkSession

    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "timed.py").write_text(
            "import sys, time\nimport torch\nopen(sys.argv[1], 'w').write(repr(time.time()))\n"
        )
        os.environ["PYTHONPATH"] = os.pathsep.join([os.environ.get("PYTHONPATH", ""), name])
        os.environ["PYSPARK_PYTHON"] = sys.executable
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.python.daemon.module", "trainyard.trainer.group.daemon")
            .getOrCreate()
        )
        task_key = TaskKey(dag_id="d", run_id="r", task_id="t", directory=str(folder / "run"))
        spec = ScriptSpec(task_key=task_key, script="timed", arguments=(str(folder / "at"),), workers=1)
        seconds = []
        for _ in range(args.rounds + 1):
            begun = time.time()
            script.run(spark, spec, EventLog(task_key.directory, "t", "driver"))
            seconds.append(float((folder / "at").read_text()) - begun)
        spark.stop()
    low, *_, high = sorted(seconds[1:])
    print(f"first line after {statistics.median(seconds[1:]):.2f} s ({low:.2f}-{high:.2f}), {args.rounds} rounds")


if __name__ == "__main__":
    main()
