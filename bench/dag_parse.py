"""How long Airflow takes to parse a DAG file that uses Trainyard, against one that is empty.

Each parse is a process of its own, as the DAG processor forks one; what both import (Airflow) is
imported before the clock starts, as it is there. Prints seconds (medians), the median ratio of
neighbouring parses, and the same with Airflow's import counted in.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
EMPTY = 'from airflow.sdk import DAG\n\nwith DAG("empty", schedule=None):\n    pass\n'
PARSE = """
import sys, time
whole = time.perf_counter()
from airflow.dag_processing.dagbag import DagBag
start = time.perf_counter()
bag = DagBag(dag_folder=sys.argv[1])
end = time.perf_counter()
assert not bag.import_errors and len(bag.dags) == 1, bag.import_errors
print(end - start, end - whole)
"""


def parse(file: Path, home: str) -> tuple[float, float]:
    """Seconds of one parse of `file`: alone, and with Airflow's import."""
    environment = os.environ | {
        "AIRFLOW_HOME": home,
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT / 'dags'}",
    }
    command = [sys.executable, "-c", PARSE, str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    alone, whole = done.stdout.split()[-2:]
    return float(alone), float(whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="parses of each file, taken in turns")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as home:
        empty = Path(home) / "empty.py"
        empty.write_text(EMPTY)
        files = {"empty": empty, "digits": ROOT / "dags" / "digits" / "dag.py"}
        for file in files.values():
            parse(file, home)
        taken = {name: [] for name in files}
        for _ in range(runs):
            for name, file in files.items():
                taken[name].append(parse(file, home))
    for index, what in enumerate(("parse alone", "with Airflow's import")):
        median = {name: statistics.median(run[index] for run in found) for name, found in taken.items()}
        pairs = zip(taken["digits"], taken["empty"], strict=True)
        ratio = statistics.median(ours[index] / theirs[index] for ours, theirs in pairs)
        print(f"{what}: empty {median['empty']:.3f} s, digits {median['digits']:.3f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
