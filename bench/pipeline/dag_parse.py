"""Compare how long Airflow takes to parse a DAG file that uses Trainyard and an empty one.

Each parse is a new process, as in the DAG processor, which forks one with Airflow already imported. Prints median
seconds and the median ratio of neighboring parses, without and with the import of Airflow.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
EMPTY = 'from airflow.sdk import DAG\n\nwith DAG("empty", schedule=None):\n    pass\n'
PARSE = """
import sys, time
begin = time.perf_counter()
from airflow.dag_processing.dagbag import DagBag
start = time.perf_counter()
bag = DagBag(dag_folder=sys.argv[1])
end = time.perf_counter()
assert not bag.import_errors and len(bag.dags) == 1, bag.import_errors
print(end - start, end - begin)
"""


def parse(file: Path, home: str) -> tuple[float, float]:
    """Return the seconds of one parse of `file`, without and with the import of Airflow."""
    environment = os.environ | {
        "AIRFLOW_HOME": home,
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT / 'dags'}",
    }
    command = [sys.executable, "-c", PARSE, str(file)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    parsing, total = process.stdout.split()[-2:]
    return float(parsing), float(total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="parses of each file, alternating")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as home:
        empty = Path(home) / "empty.py"
        empty.write_text(EMPTY)
        files = {"empty": empty, "digits": ROOT / "dags" / "digits" / "dag.py"}
        for file in files.values():
            parse(file, home)
        times = {name: [] for name in files}
        for _ in range(runs):
            for name, file in files.items():
                times[name].append(parse(file, home))
    for index, label in enumerate(("parse alone", "with Airflow's import")):
        median = {name: statistics.median(run[index] for run in runs) for name, runs in times.items()}
        pairs = zip(times["digits"], times["empty"], strict=True)
        ratio = statistics.median(digits[index] / empty[index] for digits, empty in pairs)
        print(f"{label}: empty {median['empty']:.3f} s, digits {median['digits']:.3f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
