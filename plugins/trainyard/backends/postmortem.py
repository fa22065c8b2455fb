"""Explain an application on YARN that has ended: its logs, and the cause of its failure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from trainyard.diagnosis import executors
from trainyard.diagnosis.diagnose import diagnose
from trainyard.errors import TrainyardError
from trainyard.planning.plan import Plan
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.spark_log import SparkLog
from trainyard.text import Log
from trainyard.yarn import logs
from trainyard.yarn.resource_manager import Application, ResourceManager

MAX_LINES = 100
MAX_LOST_CONTAINERS = 3


@dataclass(frozen=True)
class ContainerLogs:
    """The ends of logs: the driver's, and that of the first executor that was lost, below its title; "" for none."""

    driver: str = ""
    executor: str = ""


def log_containers(manager: ResourceManager, ended: Application, failed: bool, log: Log) -> ContainerLogs:
    """Log the end of the driver's log and, of an application that failed, of the containers it lost.

    Waits at most a minute for them. A log that cannot be read is logged, not raised.
    """
    driver, executor = "", ""
    end = time.monotonic() + logs.AGGREGATED_SECONDS
    try:
        files = logs.read_driver_log(manager, ended)
        driver = "\n".join(files[kind] for kind in sorted(files))
        lost = dict(list(logs.lost_containers(driver).items())[:MAX_LOST_CONTAINERS]) if failed else {}
        texts = logs.await_container_logs(manager, ended, lost, end - time.monotonic()) if lost else {}
        for container in filter(texts.__contains__, lost):
            text = "\n".join(texts[container].values())
            executor = executor or executors.title(container, lost[container]) + text
            _log_tail(f"the last lines of {container}, which was lost", text, log)
    except (TrainyardError, OSError) as error:
        log(f"There are no logs of {ended.id}: {error}")
    _log_tail(f"the last lines of the driver of {ended.id}", driver, log)
    return ContainerLogs(driver, executor)


def explain_failure(plan: Plan, record: RunRecord, ended: Application | None, found: ContainerLogs) -> RunRecord:
    """Return the record with the cause of a failure in front of its error, where the cause is recognized."""
    if record.status != "failed":
        return record
    error, diagnostics = record.error or "", ended.diagnostics if ended else ""
    cause = _why_executors_failed(plan, found, error, diagnostics) or _recognize(plan, error)
    return record.model_copy(update={"error": f"{plan.job.operator}: {cause}\n{error}"}) if cause else record


def describe_missing_record(plan: Plan, id: str, ended: Application | None, found: ContainerLogs) -> str:
    """Return why application `id` ended without a run record, as far as YARN and the logs say."""
    if ended is None:
        return (
            f"{plan.job.operator}: the ResourceManager has no application {id} anymore, and there is no run record of "
            "it."
        )
    cause = _why_executors_failed(plan, found, ended.diagnostics, found.driver)
    cause = cause or _recognize(plan, ended.diagnostics, found.driver)
    node = urlsplit(ended.driver_logs).hostname
    end = (
        f"{id} ended {ended.state}/{ended.final_status} before its driver{f' on {node}' if node else ''} wrote a run "
        "record. "
        f"YARN's diagnostics: {ended.diagnostics.strip() or 'none'}"
    )
    return f"{plan.job.operator}: {cause}\n{end}" if cause else f"{plan.job.operator}: {end}"


def _why_executors_failed(plan: Plan, found: ContainerLogs, *texts: str) -> str:
    """Return the error of the first executor, where executors that did not start are the cause; else ""."""
    if not found.executor or not executors.failed_to_start(*texts):
        return ""
    return _recognize(plan, found.executor) or executors.quote_first(found.executor)


def _recognize(plan: Plan, *texts: str) -> str:
    diagnosis = diagnose(plan, *texts)
    return diagnosis.sentence if diagnosis else ""


def _log_tail(title: str, text: str, log: Log) -> None:
    spark_log = SparkLog()
    lines = [line for line in text.splitlines() if spark_log.keep(line)][-MAX_LINES:]
    if lines:
        log("\n".join([f"--- {title}:", *lines, "---"]))
