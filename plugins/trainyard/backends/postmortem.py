"""Explain an application on YARN that has ended: its logs, and the cause of its failure."""

from __future__ import annotations

from trainyard.backends.spark_log import SparkLog
from trainyard.diagnosis.diagnose import diagnose
from trainyard.errors import TrainyardError
from trainyard.log import Log
from trainyard.planning.plan import Plan
from trainyard.schemas.run_record import RunRecord
from trainyard.yarn import logs
from trainyard.yarn.resource_manager import Application, ResourceManager

MAX_LINES = 100
MAX_LOST_CONTAINERS = 3


def log_containers(manager: ResourceManager, ended: Application, failed: bool, log: Log) -> str:
    """Log the end of the driver's log and, of an application that failed, of the containers it lost.

    A log that cannot be read is logged, not raised.

    Returns:
        The driver's log; empty when it cannot be read.
    """
    try:
        files = logs.read_driver_log(manager, ended)
        driver = "\n".join(files[kind] for kind in sorted(files))
        lost = logs.lost_containers(driver)[:MAX_LOST_CONTAINERS] if failed else []
        for container, texts in (logs.read_container_logs(ended, lost) if lost else {}).items():
            _log_tail(f"the last lines of {container}, which was lost", "\n".join(texts.values()), log)
    except (TrainyardError, OSError) as error:
        log(f"There are no logs of {ended.id}: {error}")
        return ""
    _log_tail(f"the last lines of the driver of {ended.id}", driver, log)
    return driver


def explain_failure(plan: Plan, record: RunRecord) -> RunRecord:
    """Return the record with the cause of a failure in front of its error, where the cause is recognized."""
    diagnosis = diagnose(plan, record.error or "") if record.status == "failed" else None
    if diagnosis is None:
        return record
    return record.model_copy(update={"error": f"{plan.operator}: {diagnosis.sentence}\n{record.error}"})


def describe_missing_record(plan: Plan, id: str, ended: Application | None, driver: str) -> str:
    """Return why application `id` ended without a run record, as far as YARN and the driver's log say."""
    if ended is None:
        return (
            f"{plan.operator}: the ResourceManager has no application {id} anymore, and there is no run record of it."
        )
    diagnosis = diagnose(plan, ended.diagnostics, driver)
    end = (
        f"{id} ended {ended.state}/{ended.final_status} before its driver wrote a run record. "
        f"YARN's diagnostics: {ended.diagnostics.strip() or 'none'}"
    )
    return f"{plan.operator}: {diagnosis.sentence}\n{end}" if diagnosis else f"{plan.operator}: {end}"


def _log_tail(title: str, text: str, log: Log) -> None:
    spark_log = SparkLog()
    lines = [line for line in text.splitlines() if spark_log.keep(line)][-MAX_LINES:]
    if lines:
        log("\n".join([f"--- {title}:", *lines, "---"]))
