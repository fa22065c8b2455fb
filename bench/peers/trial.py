"""Run a job once, kill a part of it where the scenario says so, and measure what follows."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from bench.peers import marks
from bench.peers.dataset import TRAIN_ROWS
from bench.peers.marks import WORKERS, Marks
from bench.peers.systems import JOBS, ROOT, System

EPOCHS = 5
STEPS_PER_EPOCH = 469
KILL_AT_STEP = STEPS_PER_EPOCH * 5 // 2
"""The step at which a process is killed: in the middle of the third epoch."""
SCENARIOS = {
    "run": "nothing fails",
    "worker": "kill -9 of the worker with rank 1 in the third epoch",
    "orchestrator": "kill -9 of the command itself in the third epoch",
    "label": "one training row has a label that is no class",
}
POLL_SECONDS, LEFT_SECONDS = 0.05, 15.0
MINUTES = 4
COLOR = re.compile(r"\x1b\[[0-9;]*m")
ERROR = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception)\b(?!\.java).*)")


@dataclass(frozen=True)
class Trial:
    """What one run of a job did.

    Attributes:
        date: When it began.
        status: The exit status of the command; None if it was ended after some minutes.
        seconds: How long the command ran.
        load: The load average of the machine (1 minute) when it began; the machine has two cores.
        first_step: Seconds from the start of the command to the end of the first optimizer step.
        rows_per_second: The rate of the last epoch, None if the run did not finish.
        accuracy: The accuracy on the held-out rows.
        steps: The steps of rank 0.
        next_step: Seconds from the kill to the first step of the worker that replaces the killed one.
        left: The processes that are left, by name, some seconds after the command was killed.
        still_training: Whether steps were still taken then.
        error: The last error in the output of a run that failed.
    """

    date: str
    status: int | None
    seconds: float
    load: float = 0.0
    first_step: float | None = None
    rows_per_second: float | None = None
    accuracy: float | None = None
    steps: int = 0
    next_step: float | None = None
    left: tuple[str, ...] = ()
    still_training: bool = False
    error: str = ""

    @property
    def repeated_steps(self) -> int:
        """The steps that were taken more than once."""
        return max(0, self.steps - EPOCHS * STEPS_PER_EPOCH)


def run(system: System, environment: Path, scenario: str, folder: Path, source: Path) -> Trial:
    """Run the job of a system in a scenario, and end every process that is left of it.

    Args:
        system: The system.
        environment: Its virtual environment.
        scenario: A key of `SCENARIOS`.
        folder: The folder for the log, the marks and what the job stores; it is emptied.
        source: The Parquet files.
    """
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "storage").mkdir(parents=True)
    token = uuid.uuid4().hex
    variables = build_variables(system, environment, folder, source) | {"PEERS_RUN": token}
    if system.airflow and not (folder.parent / "airflow" / "airflow.db").exists():
        migrate = [str(environment / "bin" / "airflow"), "db", "migrate"]
        subprocess.run(migrate, env=variables, check=True, capture_output=True)
    program, *arguments = system.program
    command = [str(environment / "bin" / program), *arguments]
    load = round(os.getloadavg()[0], 1)
    date, started = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"), time.time()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=JOBS / system.name, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    killed_pid, killed_at, status = 0, 0.0, None
    try:
        while (status := process.poll()) is None and time.time() < started + MINUTES * 60:
            time.sleep(POLL_SECONDS)
            if scenario in ("worker", "orchestrator") and not killed_pid:
                own = read_marks(folder).of_rank(WORKERS - 1)
                if len(own) >= KILL_AT_STEP:
                    killed_pid = own[-1].pid if scenario == "worker" else process.pid
                    killed_at = time.time()
                    os.kill(killed_pid, signal.SIGKILL)
        seconds = time.time() - started
        left: dict[int, str] = {}
        if scenario == "orchestrator" and killed_pid:
            time.sleep(LEFT_SECONDS)
            left = find_processes(token)
        found = replace(read_marks(folder), accuracy=read_accuracy(folder))
        still_training = bool(left and found.steps and found.steps[-1].at > time.time() - 2)
    finally:
        end(token, process)
    error = find_error((folder / "log").read_text(errors="replace")) if status else ""
    bare = Trial(date, status, round(seconds, 1), load, left=tuple(sorted(left.values())), error=error)
    return add_marks(replace(bare, still_training=still_training), found, scenario, started, killed_pid, killed_at)


def build_variables(system: System, environment: Path, folder: Path, source: Path) -> dict[str, str]:
    """Return the environment variables of a job."""
    excluded = ("TRAINYARD_", "AIRFLOW_", "PYTHON", "VIRTUAL_ENV", "SPARK_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(excluded)}
    storage = folder / "storage"
    imports = [JOBS / "shared", JOBS / system.name, *(ROOT / part for part in system.imports)]
    variables |= {
        "PATH": f"{environment / 'bin'}:{variables['PATH']}",
        "PYTHONPATH": ":".join(map(str, imports)),
        "OMP_NUM_THREADS": "1",
        "PEERS_SOURCE": str(source),
        "PEERS_STORAGE": str(storage),
        "PEERS_MARKS": str(folder / "marks"),
    }
    if system.airflow:
        variables |= {
            "AIRFLOW_HOME": str(folder.parent / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(JOBS / system.name),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
            "AIRFLOW_CONN_TRAINYARD_DEFAULT": f'{{"conn_type": "trainyard", "extra": {{"storage": "file://{storage}"}}}}',
        }
    return variables | dict(system.variables)


def add_marks(trial: Trial, found: Marks, scenario: str, started: float, killed_pid: int, killed_at: float) -> Trial:
    """Return a trial with the fields that follow from its marks.

    Args:
        trial: The trial without them.
        found: The marks.
        scenario: The scenario, a key of `SCENARIOS`.
        started: When the command began, in seconds since the epoch.
        killed_pid: The process that was killed, 0 if none was.
        killed_at: When it was.
    """
    own = found.of_rank(0)
    rate = marks.compute_rate(own, TRAIN_ROWS, STEPS_PER_EPOCH) if trial.status == 0 else None
    following = None
    if scenario == "worker" and killed_pid:
        following = marks.find_next_step(found, WORKERS - 1, killed_pid, killed_at)
    return replace(
        trial,
        first_step=round(found.steps[0].at - started, 1) if found.steps else None,
        rows_per_second=round(rate) if rate else None,
        accuracy=found.accuracy,
        steps=len(own),
        next_step=round(following.at - killed_at, 1) if following else None,
    )


def read_marks(folder: Path) -> Marks:
    """Return the marks that a job has written up to now."""
    file = folder / "marks"
    return marks.parse(file.read_text()) if file.exists() else Marks()


def read_accuracy(folder: Path) -> float | None:
    """Return the accuracy that a job has marked, or that is in an evaluation of Trainyard; None if there is none."""
    documents = list((folder / "storage").glob("**/evaluations/*.json"))
    if not documents:
        return read_marks(folder).accuracy
    return round(float(json.loads(documents[0].read_text())["model"]["metrics"]["accuracy"]), 4)


def find_processes(token: str) -> dict[int, str]:
    """Return the processes with this token in their environment, which every descendant inherits: names by number."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"PEERS_RUN={token}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (folder / "comm").read_text().strip()
        except OSError:  # it has ended, or is another user's
            continue
    return found


def end(token: str, process: subprocess.Popen[bytes]) -> None:
    """Kill all processes of a run."""
    while processes := find_processes(token):
        for pid in processes:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        process.poll()
        time.sleep(POLL_SECONDS)
    process.wait()


def find_error(log: str) -> str:
    """Return the last line of a log that names an error, an empty string if there is none."""
    matches = [
        match[1].strip()
        for line in COLOR.sub("", log).replace(f"{ROOT}/", "").splitlines()
        if (match := ERROR.search(line))
    ]
    return matches[-1][:240] if matches else ""
