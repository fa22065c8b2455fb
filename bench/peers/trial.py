"""Run a job once, kill a part of it where the scenario says so, and measure what follows."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.peers import marks, places, processes
from bench.peers.marks import WORKERS, Marks
from bench.peers.places import Place
from bench.peers.scenarios import IMAGES, Scenario
from bench.peers.systems import JOBS, ROOT, System

KILL_AT_STEP = IMAGES.steps_per_epoch * 5 // 2
"""The step at which a process is killed: in the middle of the third epoch."""
POLL_SECONDS, LEFT_SECONDS = 0.05, 15.0
NEXT_ATTEMPT = ("python", "-m", "next_attempt")
COLOR = re.compile(r"\x1b\[[0-9;]*m")
FAILURE = re.compile(r"^(\S+Z) \[error *\] Task failed with exception", re.MULTILINE)
"""The first line of the traceback of an attempt in Airflow's log."""
ERROR = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception)\b(?!\.java).*)")


@dataclass(frozen=True)
class Following:
    """What the command did that was started some seconds after the kill of the first one.

    Attributes:
        status: Its exit status; None if it was ended after some minutes.
        seconds: How long it ran.
        groups: How many groups of workers took steps, over both commands.
        at_once: How many of them did so at the same time, at most.
        error: The last error in its output, if it failed.
    """

    status: int | None
    seconds: float
    groups: int
    at_once: int
    error: str = ""


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
        left: What is left some seconds after the command has ended, by name: processes, on YARN applications.
        still_training: Whether steps were still taken then.
        error: The last error in the output of a run that failed.
        following: What the next command did, None without one.
        first_failure: Seconds from the start of the command until the first attempt of a task failed in Airflow.
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
    following: Following | None = None
    first_failure: float | None = None

    @property
    def repeated_steps(self) -> int:
        """The steps on images that were taken more than once."""
        return max(0, self.steps - IMAGES.epochs * IMAGES.steps_per_epoch)


def run(system: System, environment: Path, place: Place, scenario: Scenario, folder: Path, source: Path) -> Trial:
    """Run the job of a system in a scenario, and end everything that is left of it.

    Args:
        system: The system.
        environment: Its virtual environment.
        place: Where it runs.
        scenario: What happens to it.
        folder: The folder for the logs, the marks and what the job stores; it is emptied.
        source: The Parquet files.
    """
    place.end()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "storage").mkdir(parents=True)
    token = uuid.uuid4().hex
    variables = build_variables(system, environment, place, scenario, folder, source) | {"PEERS_RUN": token}
    if system.airflow and not (folder.parent / "airflow" / "airflow.db").exists():
        migrate = [str(environment / "bin" / "airflow"), "db", "migrate"]
        subprocess.run(migrate, env=variables, check=True, capture_output=True)
    launched: list[subprocess.Popen[bytes]] = []

    def launch(program: Sequence[str], log: str) -> subprocess.Popen[bytes]:
        with (folder / log).open("wb") as output:
            process = subprocess.Popen(
                [str(environment / "bin" / program[0]), *program[1:]], cwd=JOBS / system.job, env=variables,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        launched.append(process)
        return process

    load = round(os.getloadavg()[0], 1)
    date, started = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"), time.time()
    killed_pid, killed_at, still_training, following = 0, 0.0, False, None
    left: Sequence[str] = ()
    try:
        process = launch(system.program, "log")
        for _ in poll(process, scenario.minutes):
            own = read_marks(folder).of_rank(WORKERS - 1) if scenario.killed != "none" and not killed_pid else []
            if len(own) >= KILL_AT_STEP:
                killed_pid = own[-1].pid if scenario.killed == "worker" else process.pid
                killed_at = time.time()
                os.kill(killed_pid, signal.SIGKILL)
        status, seconds = process.poll(), time.time() - started
        if scenario.lists_left:
            time.sleep(LEFT_SECONDS)
            left = place.list_left(token)
            steps = read_marks(folder).steps
            still_training = bool(left and steps and steps[-1].at > time.time() - 2)
        if killed_pid and scenario.following != "none":
            program = system.program if scenario.following == "command" else (*NEXT_ATTEMPT, system.program[3])
            following = follow(launch(program, "log-following"), scenario.minutes, folder)
        found = replace(read_marks(folder), accuracy=read_accuracy(place, folder))
    finally:
        processes.end(token, *launched)
        place.end()
    log = (folder / "log").read_text(errors="replace")
    failed_at = find_first_failure(log)
    bare = Trial(
        date, status, round(seconds, 1), load, left=tuple(left), still_training=still_training,
        error=find_error(log) if status else "", following=following,
        first_failure=round(failed_at - started, 1) if failed_at else None,
    )  # fmt: skip
    return add_marks(bare, found, scenario, started, killed_pid, killed_at)


def poll(process: subprocess.Popen[bytes], minutes: int) -> Iterator[None]:
    """Yield several times a second until a process has ended, or the minutes have passed."""
    end = time.time() + minutes * 60
    while process.poll() is None and time.time() < end:
        time.sleep(POLL_SECONDS)
        yield


def follow(process: subprocess.Popen[bytes], minutes: int, folder: Path) -> Following:
    """Return what the command did that follows a killed one.

    Args:
        process: The command, which runs.
        minutes: The limit.
        folder: The folder with the marks.
    """
    started = time.time()
    for _ in poll(process, minutes):
        pass
    status, seconds = process.poll(), time.time() - started
    groups = read_marks(folder).groups
    error = find_error((folder / "log-following").read_text(errors="replace")) if status else ""
    return Following(status, round(seconds, 1), len(groups), marks.count_at_once(groups), error)


def build_variables(
    system: System, environment: Path, place: Place, scenario: Scenario, folder: Path, source: Path
) -> dict[str, str]:
    """Return the environment variables of a job."""
    excluded = ("TRAINYARD_", "AIRFLOW_", "PYTHON", "VIRTUAL_ENV", "SPARK_", "HADOOP_", "PEERS_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(excluded)}
    imports = [JOBS / "shared", JOBS / system.job, *(ROOT / part for part in system.imports)]
    variables |= {
        "PATH": f"{environment / 'bin'}:{variables['PATH']}",
        "PYTHONPATH": ":".join(map(str, imports)),
        "OMP_NUM_THREADS": "1",
        "PEERS_SOURCE": str(source),
        "PEERS_STORAGE": str(folder / "storage"),
        "PEERS_MARKS": str(folder / "marks"),
        **scenario.workload.variables,
        **scenario.variables,
    }
    if system.airflow:
        variables |= {
            "AIRFLOW_HOME": str(folder.parent / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(JOBS / system.job),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        }
    return variables | place.build_variables(folder, variables) | dict(system.variables)


def add_marks(
    trial: Trial, found: Marks, scenario: Scenario, started: float, killed_pid: int, killed_at: float
) -> Trial:
    """Return a trial with the fields that follow from its marks.

    Args:
        trial: The trial without them.
        found: The marks.
        scenario: The scenario.
        started: When the command began, in seconds since the epoch.
        killed_pid: The process that was killed, 0 if none was.
        killed_at: When it was.
    """
    own = found.of_rank(0)
    workload = scenario.workload
    rate = marks.compute_rate(own, workload.rows, workload.steps_per_epoch) if trial.status == 0 else None
    following = None
    if scenario.killed == "worker" and killed_pid:
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


def read_accuracy(place: Place, folder: Path) -> float | None:
    """Return the accuracy that a job has marked, or that is in an evaluation of Trainyard; None if there is none."""
    evaluation = place.read_evaluation(folder)
    return places.parse_accuracy(evaluation) if evaluation else read_marks(folder).accuracy


def find_first_failure(log: str) -> float | None:
    """Return when the first attempt of a task failed, by a log of Airflow, in seconds since the epoch."""
    match = FAILURE.search(COLOR.sub("", log))
    return datetime.datetime.fromisoformat(match[1]).timestamp() if match else None


def find_error(log: str) -> str:
    """Return the last line of a log that names an error, with YARN's diagnostics; empty if there is none."""
    text = COLOR.sub("", log).replace(f"{ROOT}/", "").replace("\nDiagnostics:", " Diagnostics:")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("at ", "Caused by:"))]
    matches = [match[1].strip() for line in lines if (match := ERROR.search(line))]
    return matches[-1][:400] if matches else ""
