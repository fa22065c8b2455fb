"""What is told of an application on YARN that has ended: its logs, and the reason in a sentence where it failed."""

from __future__ import annotations

from trainyard.backends.spark_log import SparkLog
from trainyard.diagnosis.diagnose import diagnose
from trainyard.errors import TrainyardError
from trainyard.log import Log
from trainyard.planning.plan import Plan
from trainyard.schemas.run_record import RunRecord
from trainyard.yarn import logs
from trainyard.yarn.resource_manager import Application, ResourceManager

LINES_SHOWN = 100
LOST_SHOWN = 3


def log_containers(manager: ResourceManager, ended: Application, failed: bool, log: Log) -> str:
    """What is worth it of the driver's log and, of an application that failed, of the containers it lost.

    Returns the driver's log. That logs cannot be read is told, and is no failure.
    """
    try:
        files = logs.of_driver(manager, ended)
        driver = "\n".join(files[kind] for kind in sorted(files))
        lost = logs.lost_containers(driver)[:LOST_SHOWN] if failed else []
        for container, written in (logs.of_containers(ended, lost) if lost else {}).items():
            _tell(f"the last lines of {container}, which was lost", "\n".join(written.values()), log)
    except (TrainyardError, OSError) as error:
        log(f"There are no logs of {ended.id}: {error}")
        return ""
    _tell(f"the last lines of the driver of {ended.id}", driver, log)
    return driver


def explain_failure(plan: Plan, found: RunRecord) -> RunRecord:
    """A record whose error begins with what it means, where that is known."""
    meaning = diagnose(plan, found.error or "") if found.status == "failed" else None
    if meaning is None:
        return found
    return found.model_copy(update={"error": f"{plan.operator}: {meaning.sentence}\n{found.error}"})


def describe_missing_record(plan: Plan, id: str, ended: Application | None, driver: str) -> str:
    """Why application `id` ended before its driver wrote a record, as far as YARN and the driver's log tell."""
    if ended is None:
        return f"{plan.operator}: {id} is gone from the ResourceManager, and its driver wrote no record of the run."
    meaning = diagnose(plan, ended.diagnostics, driver)
    said = (
        f"{id} ended {ended.state}/{ended.final_status} before its driver wrote a record of the run. "
        f"YARN says: {ended.diagnostics.strip() or 'nothing'}"
    )
    return f"{plan.operator}: {meaning.sentence}\n{said}" if meaning else f"{plan.operator}: {said}"


def _tell(title: str, text: str, log: Log) -> None:
    sift = SparkLog()
    kept = [line for line in text.splitlines() if sift.keep(line)][-LINES_SHOWN:]
    if kept:
        log("\n".join([f"--- {title}:", *kept, "---"]))
