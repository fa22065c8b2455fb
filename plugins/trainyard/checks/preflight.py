"""Check every stage of a DAG before it runs: against the cluster, the storage, and the Python on the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from urllib.parse import unquote, urlsplit

from trainyard.clusters.registry import find_cluster
from trainyard.files import storage, trial, uris
from trainyard.jobs.dry_run import TaskPlan
from trainyard.jobs.options.validation import is_pending
from trainyard.planning.finding import Finding
from trainyard.planning.plan import Plan


def check_dag(stages: Sequence[TaskPlan]) -> list[Finding]:
    """Return what fits and what does not, for all stages at once. Nothing of the DAG runs.

    It writes, reads and removes a file where stages write, and looks for the files of this machine that they ship. On
    YARN, for stages without another problem, it runs containers of about a second that do so as the drivers and
    executors, import what the stages import, and count the GPUs that they are given. Stages with preflight 'off' are
    not checked against the cluster.
    """
    plans = [stage.plan for stage in stages if stage.plan]
    findings = [Finding(stage.task_id, "plan", "a plan", "none", stage.problem) for stage in stages if stage.problem]
    findings += [finding for plan in plans for finding in _check_files(plan)]
    written = _check_storage(stages)
    refused = [finding.needed for finding in written if finding.problem]
    writes = {stage.task_id: [uri for uri in _list_roots([stage]) if uri not in refused] for stage in stages}
    checked = [(find_cluster(plan.spark), plan) for plan in plans if plan.job.preflight != "off"]
    for kind in dict.fromkeys(type(cluster) for cluster, _ in checked):
        of_kind = [(cluster, plan) for cluster, plan in checked if type(cluster) is kind]
        findings += of_kind[0][0].check_plans([plan for _, plan in of_kind], writes)
    return findings + written


def _check_files(plan: Plan) -> Iterator[Finding]:
    """Find the jars and files that spark-submit would not find on this machine."""
    for option, files in (("jars", plan.job.jars), ("files", plan.files)):
        for uri in files:
            if not (is_pending(uri) or _exists(uri)):
                problem = (
                    f"{plan.job.operator}: {option}={uri!r} does not exist on this machine, which submits the "
                    "application. Write the path of a file, or a URI that every node reads, for example "
                    f"'hdfs:///{option}/{uri.partition('#')[0].rpartition('/')[2]}'."
                )
                yield Finding(plan.job.task_key.task, option, uri, "missing", problem)


def _exists(uri: str) -> bool:
    """Return whether spark-submit finds a file, or one that matches a pattern. That of another storage is not read."""
    location = urlsplit(uri)
    if location.scheme not in ("", "file"):
        return True
    return bool(storage.list_files(unquote(location.path) if location.scheme else uri.partition("#")[0]))


def _check_storage(stages: Sequence[TaskPlan]) -> list[Finding]:
    """Check that stages can write where they write."""
    return [_check_write(stage, uri) for uri, stage in _list_roots(stages).items()]


def _list_roots(stages: Sequence[TaskPlan]) -> dict[str, str]:
    """Return the directories that stages write to, each with its first stage; those below others are left out."""
    writers = {uri: stage.task_id for stage in reversed(stages) for uri in stage.writes if not is_pending(uri)}
    below = {u for u in writers for other in writers if u != other and u.startswith(uris.join(other, ""))}
    return {uri: stage for uri, stage in writers.items() if uri not in below}


def _check_write(stage: str, uri: str) -> Finding:
    if why := trial.write_error(uri):
        return Finding(stage, "storage", uri, "not writable", f"{uri} cannot be written: {why}")
    return Finding(stage, "storage", uri, "writable")
