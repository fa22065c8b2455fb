"""Run a DAG, and show its stages on one screen while Airflow's log goes to a file."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from trainyard.errors import TrainyardError
from trainyard.schemas.runs import outcomes
from trainyard.schemas.runs.worker_progress import GroupProgress

INTERVAL_SECONDS = 0.5
MARKS = {"succeeded": "[green]done[/]", "failed": "[red]failed[/]", "running": "[cyan]running[/]"}


@dataclass(frozen=True)
class Stage:
    """What is known of a stage.

    Attributes:
        name: The task.
        status: `running`, `succeeded` or `failed`.
        started_at: When its spec was written, in seconds since the epoch.
        seconds: How long its application ran, None while it runs.
        progress: The progress of its training as text, "" for none.
    """

    name: str
    status: str
    started_at: float
    seconds: float | None = None
    progress: str = ""

    def describe_time(self, now: float) -> str:
        """Return how long the stage has run."""
        return f"{now - self.started_at if self.seconds is None else self.seconds:.0f} s"


def find_stages(run: Path) -> list[Stage]:
    """Return the stages of a run that have begun, in the order in which they began."""
    try:
        records = {record.task_key.task: record for record in outcomes.read_run(str(run))}
    except (TrainyardError, OSError):
        records = {}
    stages = []
    for spec in sorted((run / "specs").glob("*.json"), key=lambda file: file.stat().st_mtime):
        record, started = records.get(spec.stem), spec.stat().st_mtime
        if record and record.started_at >= started - 1:
            stages.append(Stage(spec.stem, record.status, started, record.seconds))
        else:
            stages.append(Stage(spec.stem, "running", started, progress=read_progress(run, spec.stem)))
    return stages


def read_progress(run: Path, task: str) -> str:
    """Return the progress of the training of a task, "" if there is none."""
    try:
        training = GroupProgress.load(str(run / "progress" / f"{task}.json")).training
    except (TrainyardError, OSError):
        return ""
    return training.describe() if training else ""


def as_table(stages: Sequence[Stage], now: float) -> Table:
    """Return the stages as a table of a terminal."""
    table = Table.grid(padding=(0, 2))
    for stage in stages:
        table.add_row(stage.name, MARKS[stage.status], stage.describe_time(now), stage.progress)
    return table


def run(command: Sequence[str], runs: Path, log: Path, console: Console) -> int:
    """Run a command to its end, and show the stages of the run that it begins.

    Args:
        command: Runs the DAG.
        runs: The directory of the DAG's runs.
        log: The file for the output of the command.
        console: A terminal shows the stages as they are; anything else gets a line when one begins or ends.

    Returns:
        The exit status of the command.
    """
    before = set(runs.glob("*"))
    shown: dict[str, str] = {}
    with log.open("wb") as output, Live(console=console, transient=False, auto_refresh=False) as live:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            ended = False
            while not ended:
                ended = process.poll() is not None
                stages = [stage for each in sorted(set(runs.glob("*")) - before) for stage in find_stages(each)]
                if console.is_terminal:
                    live.update(as_table(stages, time.time()), refresh=True)
                else:
                    print_changes(stages, shown, console)
                time.sleep(0 if ended else INTERVAL_SECONDS)
        finally:
            process.terminate()
            process.wait()
    return process.returncode


def print_changes(stages: Sequence[Stage], shown: dict[str, str], console: Console) -> None:
    """Print a line for each stage whose status is another one than is `shown`, which is updated."""
    for stage in stages:
        if shown.get(stage.name) != stage.status:
            suffix = "" if stage.seconds is None else f" in {stage.describe_time(0)}"
            console.print(f"{stage.name} {stage.status}{suffix}", highlight=False)
            shown[stage.name] = stage.status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dag")
    parser.add_argument("--home", type=Path, required=True, help="folder of the files of the local Airflow")
    chosen = parser.parse_args()
    log = chosen.home / f"{chosen.dag}.log"
    print(f"Running DAG {chosen.dag}; Airflow's log is {log}", flush=True)
    runs = chosen.home / "storage" / "runs" / chosen.dag
    status = run(["airflow", "dags", "test", chosen.dag], runs, log, Console())
    if status:
        print(f"The DAG failed; the last lines of {log}:\n", *log.read_text().splitlines(True)[-20:], sep="")
    return status


if __name__ == "__main__":
    sys.exit(main())
