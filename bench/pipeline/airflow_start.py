"""Measure what Trainyard's plugin adds to the start of Airflow, and to the parse of a DAG that does not use it.

Each start is a new process, alternately with the plugins folder and with an empty one. Times are processor time,
which other work on the machine hardly changes. Prints medians, and the median ratio of neighboring starts.
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
STARTS = {
    "plugins manager": "from airflow import plugins_manager as p; p.ensure_plugins_loaded(); p.get_fastapi_plugins()",
    "api-server": "from airflow.api_fastapi.app import create_app; create_app()",
    "parse of an empty DAG": (
        "from airflow.dag_processing.dagbag import DagBag; import os;"
        "assert len(DagBag(os.environ['AIRFLOW__CORE__DAGS_FOLDER']).dags) == 1"
    ),
}


def measure_start(program: str, home: str, plugins: Path) -> float:
    """Return the processor time of a program in seconds, with Airflow's plugins in the folder `plugins`."""
    environment = os.environ | {
        "AIRFLOW_HOME": home,
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins),
        "AIRFLOW__CORE__DAGS_FOLDER": f"{home}/dags",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    process = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, program
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="starts of each, alternating")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as home:
        folders = {"without": Path(home) / "plugins", "with": ROOT / "plugins"}
        for name in ("plugins", "dags"):
            (Path(home) / name).mkdir()
        (Path(home) / "dags/empty.py").write_text(EMPTY)
        migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
        subprocess.run(migrate, env=os.environ | {"AIRFLOW_HOME": home}, check=True, capture_output=True)
        for label, program in STARTS.items():
            times: dict[str, list[float]] = {name: [] for name in folders}
            for _ in range(runs + 1):
                for name, folder in folders.items():
                    times[name].append(measure_start(program, home, folder))
            warm = {name: seconds[1:] for name, seconds in times.items()}
            median = {name: statistics.median(seconds) for name, seconds in warm.items()}
            ratio = statistics.median(a / b for a, b in zip(warm["with"], warm["without"], strict=True))
            print(
                f"{label}: without {median['without']:.2f} s, with {median['with']:.2f} s, ratio {ratio:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
