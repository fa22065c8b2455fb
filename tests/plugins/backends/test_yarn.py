"""Applications on YARN: one at a time for a task, none after a kill, and no plan where the record is enough.

spark-submit is a script here, so that a test decides what happens at which moment; tests/cluster kills the real one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from tests.plugins.backends.threads import run_in_thread
from tests.plugins.resource_managers import Answer, application, applications, serve, write_yarn_site
from tests.plugins.results import output
from trainyard.backends import processes, yarn
from trainyard.backends.yarn import YarnBackend
from trainyard.clusters.registry import find_cluster
from trainyard.errors import TrainyardError, UnavailableError
from trainyard.hooks import airflow_id
from trainyard.planning.job import Job, Runtime, SparkConnection
from trainyard.planning.paths import is_submission_tag, submission_tag
from trainyard.planning.plan import Plan, build_plan
from trainyard.planning.shipping.environment import spark_archive
from trainyard.schemas.runs.owner import Owner, find_owner, list_submissions
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.triggers.application import ApplicationTrigger
from trainyard.usage import resource_usage
from trainyard.usage.resource_usage import ResourceUsage
from trainyard.yarn.resource_manager import Application, ResourceManager, UnreachableError

SUBMIT = """#!/bin/bash
for argument; do case $argument in spark.yarn.tags=*) tags=${argument#*=};; esac; done
echo $$ >FOLDER/started
ACTION
"""
REGISTER = "echo $tags >FOLDER/.tags; mv FOLDER/.tags FOLDER/tags"


class Cluster:
    """A ResourceManager and a spark-submit.

    `entries` are applications that exist; one more is there as soon as spark-submit has registered it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: dict[str, dict[str, Any]] = {}
        self.killed: list[str] = []

    def script(self, *actions: str) -> None:
        """Write what spark-submit does."""
        text = SUBMIT.replace("ACTION", "\n".join(actions)).replace("FOLDER", str(self.folder))
        (self.folder / "spark-submit").write_text(text)
        (self.folder / "spark-submit").chmod(0o700)

    def answer(self, method: str, path: str, query: dict[str, str]) -> Answer:
        if (tags := self.folder / "tags").exists():
            self.entries.setdefault(ID, application(1, applicationTags=tags.read_text().strip()))
        id = path.split("/")[5] if path.count("/") > 4 else ""
        if method == "PUT":
            self.killed.append(id)
            self.entries[id]["state"] = "KILLED"
            return Answer({"state": "KILLED"}, 202)
        if id:
            return Answer({"app": self.entries[id]})
        tag = query["applicationTags"]
        return Answer(applications(*(e for e in self.entries.values() if tag in e["applicationTags"].split(","))))

    @property
    def has_started(self) -> bool:
        """Whether spark-submit was started."""
        return (self.folder / "started").exists()


ROOT = "memory://storage"
ID = "application_1795290845344_0001"
OTHER = "application_1795290845344_0009"
OLDER = "application_1795290845344_0000"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path)
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "yarn"}')
    monkeypatch.setattr(YarnBackend, "_fit", lambda self, plan, log: plan)
    monkeypatch.setattr(airflow_id, "get_id", lambda: "trainyard_airflow_1")
    with serve(cluster.answer) as server:
        write_yarn_site(tmp_path, monkeypatch, server)
        yield cluster


@pytest.fixture
def task_key(tmp_path: Path) -> TaskKey:
    return TaskKey(dag_id="toy", run_id="r1", task_id="train", directory=f"file://{tmp_path}/s/runs/toy/r1")


@pytest.fixture
def plan(tmp_path: Path, task_key: TaskKey) -> Plan:
    spark = SparkConnection("spark_default", "yarn", deploy_mode="cluster")
    runtime = Runtime("/driver.py", (), {"PATH": f"{tmp_path}:/usr/bin:/bin", "SPARK_HOME": str(tmp_path)})
    conf = {"spark.yarn.tags": "team-x"}
    job = Job("TrainOperator 'train'", task_key, f"file://{tmp_path}/s", {}, conf=conf)
    return build_plan(job, find_cluster(spark), runtime)


@pytest.fixture
def backend(plan: Plan, task_key: TaskKey) -> YarnBackend:
    return YarnBackend(plan.job.operator, task_key, plan.job.storage, lambda: plan)


def wait_for(condition: Callable[[], Any]) -> None:
    ticks = threading.Event()
    for _ in range(6000):
        if condition():
            return
        ticks.wait(0.01)
    raise AssertionError("the condition did not come true within a minute")


NEXT = submission_tag("next")
KILLED = "TrainOperator 'train' was killed while it was submitted; no application of it is left."


def test_an_application_is_found_by_its_submission_and_keeps_the_tags_of_the_user(
    cluster: Cluster, backend: YarnBackend, plan: Plan
) -> None:
    cluster.script(REGISTER)
    trigger = backend.run(lambda line: None)
    assert isinstance(trigger, ApplicationTrigger) and trigger.application == ID
    tags = cluster.entries[ID]["applicationTags"].split(",")
    assert tags[0] == plan.tag and "team-x" in tags
    assert list_submissions(plan.job.storage) == [tag for tag in tags if is_submission_tag(tag)] == tags[-1:]
    owner = find_owner(plan.job.storage, tags[-1])
    assert owner and owner.task_key == plan.job.task_key and owner.airflow == "trainyard_airflow_1"


def test_nothing_is_submitted_with_an_archive_that_others_can_write_to(
    cluster: Cluster, backend: YarnBackend, plan: Plan
) -> None:
    cluster.script(REGISTER)
    archive = spark_archive(plan.job.storage, Path(plan.env["SPARK_HOME"]))
    Path(archive.removeprefix("file://")).chmod(0o666)
    with pytest.raises(TrainyardError, match=r"^TrainOperator 'train': .*\.zip can be written to by other users"):
        backend.run(lambda line: None)
    assert not cluster.has_started and list_submissions(plan.job.storage) == []


def test_a_kill_while_the_worker_plans_submits_nothing(cluster: Cluster, plan: Plan, task_key: TaskKey) -> None:
    def make_plan() -> Plan:
        backend.kill()
        return plan

    cluster.script(REGISTER)
    backend = YarnBackend(plan.job.operator, task_key, plan.job.storage, make_plan)
    with pytest.raises(TrainyardError, match=KILLED):
        backend.run(lambda line: None)
    assert not cluster.has_started


@pytest.mark.slow
def test_a_kill_just_before_spark_submit_starts_ends_it(
    cluster: Cluster, backend: YarnBackend, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler of the signal finds no process yet."""
    build = SparkSubmitHook._build_spark_submit_command

    def kill_and_build(hook: SparkSubmitHook, application: str) -> list[str]:
        backend.kill()
        return list(build(hook, application))

    monkeypatch.setattr(SparkSubmitHook, "_build_spark_submit_command", kill_and_build)
    cluster.script("sleep 3600")
    thread, errors = run_in_thread(backend)
    thread.join(60)
    assert errors == [KILLED]
    assert processes.find_tagged(plan.tag) == []


@pytest.mark.slow
def test_a_kill_while_spark_submit_runs_ends_it(cluster: Cluster, backend: YarnBackend, plan: Plan) -> None:
    cluster.script("sleep 3600")
    thread, errors = run_in_thread(backend)
    wait_for(lambda: cluster.has_started)
    backend.kill()
    thread.join(60)
    assert errors == [KILLED]
    assert processes.find_tagged(plan.tag) == []


def test_an_application_that_was_accepted_before_the_kill_is_killed(cluster: Cluster, backend: YarnBackend) -> None:
    cluster.script(REGISTER, "sleep 3600")
    thread, errors = run_in_thread(backend)
    wait_for((cluster.folder / "tags").exists)
    backend.kill()
    thread.join(60)
    assert errors == [KILLED]
    assert set(cluster.killed) == {ID}


@pytest.mark.slow
def test_a_kill_of_a_submission_leaves_the_application_of_another_attempt(
    cluster: Cluster, backend: YarnBackend, plan: Plan
) -> None:
    """A worker that was thought to be lost comes back, while the next attempt's application runs."""
    cluster.script("sleep 3600")
    thread, _ = run_in_thread(backend)
    wait_for(lambda: cluster.has_started)
    cluster.entries[OTHER] = application(9, applicationTags=plan.conf["spark.yarn.tags"])
    backend.kill()
    thread.join(60)
    assert cluster.killed == []


@pytest.mark.slow
def test_a_submission_that_no_signal_ends_leaves_no_application(
    cluster: Cluster, backend: YarnBackend, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a process in uninterruptible sleep: Airflow ends this process five seconds after its SIGTERM."""
    cluster.script(REGISTER, "sleep 3600")
    thread, _ = run_in_thread(backend)
    wait_for((cluster.folder / "tags").exists)
    with monkeypatch.context() as patch:
        patch.setattr(processes, "_signal", lambda alive, hard: None)
        begin = time.monotonic()
        backend.kill()
        assert cluster.killed == [ID] and time.monotonic() - begin < 5
    processes.end(plan.tag)
    thread.join(60)


@pytest.mark.slow
@pytest.mark.parametrize("error", [ElementTree.ParseError("no element found"), OSError("a stale file handle")])
def test_a_kill_without_a_readable_configuration_raises_nothing_and_ends_spark_submit(
    cluster: Cluster, backend: YarnBackend, plan: Plan, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """An exception in the handler of the signal would end what `run` still has to do."""

    def fail(*_: object) -> None:
        raise error

    cluster.script("sleep 3600")
    thread, errors = run_in_thread(backend)
    wait_for(lambda: cluster.has_started)
    monkeypatch.setattr("trainyard.yarn.cluster.resource_manager", fail)
    backend.kill()
    thread.join(60)
    assert errors == [KILLED]
    assert processes.find_tagged(plan.tag) == []


def test_an_older_application_of_another_attempt_is_kept_and_the_younger_is_killed(
    cluster: Cluster, plan: Plan, task_key: TaskKey
) -> None:
    """A worker that seemed lost submits after this attempt has looked, and before it submits."""

    def make_plan() -> Plan:
        cluster.entries[OLDER] = application(0, "ACCEPTED", applicationTags=plan.conf["spark.yarn.tags"])
        return plan

    cluster.script(REGISTER)
    trigger = YarnBackend(plan.job.operator, task_key, plan.job.storage, make_plan).run(lambda line: None)
    assert isinstance(trigger, ApplicationTrigger) and (trigger.application, trigger.reattached) == (OLDER, True)
    assert cluster.killed == [ID] and list_submissions(plan.job.storage) == []


@pytest.mark.slow
def test_a_killed_submission_keeps_the_owner_of_that_of_the_next_attempt(
    cluster: Cluster, backend: YarnBackend, plan: Plan
) -> None:
    """A worker that seemed lost comes back before the application of the next attempt is registered."""
    cluster.script("sleep 3600")
    thread, _ = run_in_thread(backend)
    wait_for(lambda: cluster.has_started)
    Owner(task_key=plan.job.task_key).save(plan.job.storage, NEXT)
    backend.kill()
    thread.join(60)
    assert list_submissions(plan.job.storage) == [NEXT]


def test_the_end_of_an_application_keeps_the_owner_of_the_next_one(
    cluster: Cluster, backend: YarnBackend, plan: Plan
) -> None:
    cluster.script(REGISTER)
    backend.run(lambda line: None)
    tags = cluster.entries[ID]["applicationTags"]
    cluster.entries[ID] = application(1, "FINISHED", amContainerLogs="", applicationTags=tags)
    write_record(plan.job.task_key)
    Owner(task_key=plan.job.task_key).save(plan.job.storage, NEXT)
    backend.collect({"application": ID}, lambda line: None)
    assert list_submissions(plan.job.storage) == [NEXT]


def test_a_resource_manager_without_an_answer_after_the_submission_is_named(
    cluster: Cluster, backend: YarnBackend, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be an application, so its owner stays, and the message does not deny it."""

    def refuse_searches(manager: ResourceManager, tag: str, states: object = ()) -> list[Application]:
        if is_submission_tag(tag):
            raise UnreachableError("no active ResourceManager answers")
        return []

    monkeypatch.setattr(yarn, "REGISTRATION_SECONDS", 0.1)
    monkeypatch.setattr(ResourceManager, "tagged", refuse_searches)
    cluster.script("exit 0")
    with pytest.raises(UnreachableError):
        backend.run(lambda line: None)
    assert list_submissions(plan.job.storage)


def test_a_task_that_failed_for_good_ends_every_application_of_its_own(
    cluster: Cluster, backend: YarnBackend, plan: Plan
) -> None:
    cluster.entries[OTHER] = application(9, applicationTags=plan.conf["spark.yarn.tags"])
    backend.kill_all()
    assert cluster.killed == [OTHER]


DRIVER_KILLED = (
    "Container [pid=2,containerID=container_1795290845344_0000_01_000001] is running 50892800B beyond the 'PHYSICAL' "
    "memory limit. Current usage: 2.5 GB of 1.4 GB physical memory used; 3.2 GB of 4.0 GB virtual memory used."
)
WORKER_KILLED = "Container killed by YARN for exceeding physical memory limits. 3.6 GB of 3 GB physical memory used."


@pytest.mark.parametrize(
    ("diagnostics", "error", "option"), [(DRIVER_KILLED, "", "driver_memory"), ("", WORKER_KILLED, "memory")]
)
def test_the_memory_that_an_attempt_needed_is_requested_after_another_failure_too(
    cluster: Cluster, plan: Plan, task_key: TaskKey, monkeypatch: pytest.MonkeyPatch,
    diagnostics: str, error: str, option: str,
) -> None:  # fmt: skip
    """The node of the second attempt was lost; in a container of the first size the third would be killed again."""
    tag = plan.conf["spark.yarn.tags"]
    cluster.entries = {
        OLDER: application(0, "FAILED", applicationTags=tag, diagnostics=diagnostics),
        OTHER: application(9, "FAILED", applicationTags=tag, diagnostics="Container released on a *lost* node"),
    }
    usage = ResourceUsage(
        task_key=task_key, application=OLDER, queue="train", started_at=1.0, seconds=2.0, busy_seconds=0.0,
        core_seconds=4.0, error=error,
    )  # fmt: skip
    resource_usage.save(usage, print)
    submitted: list[Plan] = []
    monkeypatch.setattr(YarnBackend, "_fit", lambda self, plan, log: submitted.append(plan) or plan)
    cluster.script(REGISTER)
    growing = plan.with_job(grow_memory_to="16g")
    YarnBackend(plan.job.operator, task_key, plan.job.storage, lambda: growing).run(lambda line: None)
    assert [
        name for name in ("memory", "driver_memory") if getattr(submitted[0].job, name) != getattr(plan.job, name)
    ] == [option]


def write_record(task_key: TaskKey, **fields: Any) -> RunRecord:
    record = RunRecord(
        task_key=task_key,
        job="train",
        application=ID,
        started_at=1.0,
        seconds=2.0,
        output=output("train"),
        **({"status": "succeeded"} | fields),
    )
    record.save()
    return record


def no_plan() -> Plan:
    raise AssertionError("a result needs no plan")


@pytest.mark.parametrize("event", [{"application": ID}, {"application": ID, "error": "it has no such application"}])
def test_a_result_is_collected_without_a_plan(cluster: Cluster, task_key: TaskKey, event: dict[str, str]) -> None:
    cluster.entries[ID] = application(1, "FINISHED", amContainerLogs="")
    record = write_record(task_key)
    backend = YarnBackend("TrainOperator 'train'", task_key, ROOT, no_plan)
    assert backend.collect(event, lambda line: None) == record


def test_the_log_of_the_resumed_task_names_the_application(cluster: Cluster, task_key: TaskKey) -> None:
    """A remote log that is not appended to has these lines alone."""
    cluster.entries[ID] = application(1, "FINISHED", amContainerLogs="")
    write_record(task_key)
    lines: list[str] = []
    YarnBackend("TrainOperator 'train'", task_key, ROOT, no_plan).collect({"application": ID}, lines.append)
    ended = cluster.entries[ID]
    assert lines[0] == f"{ID} ended {ended['finalStatus']}: {ended['trackingUrl']}"


def test_a_result_is_collected_while_the_resource_manager_cannot_be_asked(
    cluster: Cluster, task_key: TaskKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise UnavailableError("there is no valid ticket")

    monkeypatch.setattr("trainyard.yarn.cluster.resource_manager", refuse)
    record = write_record(task_key)
    backend = YarnBackend("TrainOperator 'train'", task_key, ROOT, no_plan)
    assert backend.collect({"application": ID}, lambda line: None) == record


def test_the_error_of_a_record_is_told_where_no_plan_can_be_made(cluster: Cluster, task_key: TaskKey) -> None:
    def fail() -> Plan:
        raise UnavailableError("HDFS is away")

    cluster.entries[ID] = application(1, "FAILED", amContainerLogs="")
    record = write_record(task_key, status="failed", error="ValueError: the price of tea is unknown")
    backend = YarnBackend("TrainOperator 'train'", task_key, ROOT, fail)
    assert backend.collect({"application": ID}, lambda line: None) == record


@pytest.mark.parametrize("event", [{"application": ID}, {"application": ID, "error": "gone"}])
def test_an_application_that_yarn_calls_live_is_waited_for(
    cluster: Cluster, backend: YarnBackend, event: dict[str, str]
) -> None:
    cluster.entries[ID] = application(1, "RUNNING", amContainerLogs="")
    trigger = backend.collect(event, print)
    assert isinstance(trigger, ApplicationTrigger) and trigger.application == ID
    assert cluster.killed == []


def test_an_application_without_an_answer_is_named(task_key: TaskKey, cluster: Cluster) -> None:
    backend = YarnBackend("TrainOperator 'train'", task_key, ROOT, no_plan)
    with pytest.raises(TrainyardError, match=f"has returned no status for {ID} for 15 minutes: gone"):
        backend.collect({"application": ID, "error": "gone"}, lambda line: None)
