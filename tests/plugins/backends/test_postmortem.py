"""The cause of a failure, from what driver, YARN and the first lost executor wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.plugins.snapshots import group_plan
from tests.plugins.yarn.test_logs import CONTAINER_LOG
from trainyard.backends import postmortem
from trainyard.backends.postmortem import ContainerLogs
from trainyard.errors import TrainyardError
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.yarn import java_programs, logs
from trainyard.yarn.resource_manager import Application, ResourceManager

NO_GPU = (
    "26/11/23 23:14:02 INFO SecurityManager: Changing modify acls groups to: root\n"
    "26/11/23 23:14:02 ERROR YarnCoarseGrainedExecutorBackend: Executor self-exiting due to : Unable to create "
    "executor due to requirement failed: Resource: gpu, with addresses: {} is less than what the user requested: 2)\n"
)
"""Spark 4.2 (ResourceUtils.assertResourceAllocationMeetsRequest), on a node without nvidia-smi."""
NO_JVM = "Unrecognized VM option 'UseNothing'\nError: Could not create the Java Virtual Machine.\n"
TOO_MANY = "Max number of executor failures (4) reached"
EXECUTOR = "executor container_1_0001_01_000002 on node gpu7:\n"


def ended(diagnostics: str) -> Application:
    return Application("application_1_0001", "FINISHED", "FAILED", "train", diagnostics, "", 1.0)


def record(error: str) -> RunRecord:
    return RunRecord(
        task_key=group_plan().job.task_key, job="train", application="application_1_0001", started_at=1.0, seconds=1.0,
        status="failed", error=error,
    )  # fmt: skip


def without_record(diagnostics: str, executor: str) -> str:
    logs = ContainerLogs(driver="", executor=executor)
    return postmortem.describe_missing_record(group_plan(), "application_1_0001", ended(diagnostics), logs)


def with_record(error: str, diagnostics: str, executor: str) -> str:
    logs = ContainerLogs(driver="", executor=executor)
    return str(postmortem.explain_failure(group_plan(), record(error), ended(diagnostics), logs).error)


def test_a_node_without_a_working_gpu_is_named_with_its_count_of_gpus() -> None:
    for found, addresses in ((0, ""), (1, "0")):
        message = without_record(TOO_MANY, EXECUTOR + NO_GPU.format(addresses)).splitlines()[0]
        assert message == (
            f"TrainOperator 'train': On node 'gpu7', nvidia-smi found {found} of the 2 GPUs that an executor requests. "
            "Run it there: the driver must be loaded, and containers must be allowed to use the GPUs. Otherwise have "
            "the node taken out of its label."
        )


def test_the_cause_is_the_same_with_and_without_a_record_of_the_driver() -> None:
    error = "ConnectionRefusedError: [Errno 111] Connection refused"
    for executor in (EXECUTOR + NO_GPU.format(""), EXECUTOR + NO_JVM):
        first = without_record(TOO_MANY, executor).splitlines()[0]
        assert with_record(error, TOO_MANY, executor).splitlines() == [first, error]


def test_the_node_of_a_driver_that_left_no_record_is_named() -> None:
    application = replace(
        ended("Diagnostics: Container released on a *lost* node"), driver_logs="http://n7:8042/node/c"
    )
    message = postmortem.describe_missing_record(group_plan(), "application_1_0001", application, ContainerLogs())
    cause, end = message.splitlines()
    assert cause.startswith("TrainOperator 'train': A node was lost")
    assert end.startswith("application_1_0001 ended FINISHED/FAILED before its driver on n7 wrote a run record.")


def test_an_error_that_is_not_recognized_is_quoted_from_the_first_executor() -> None:
    assert without_record(TOO_MANY, EXECUTOR + NO_JVM).splitlines()[0] == (
        "TrainOperator 'train': Executors failed to start. The first one, container_1_0001_01_000002 on node gpu7, "
        "ended with: Error: Could not create the Java Virtual Machine."
    )


def test_a_group_without_slots_has_the_error_of_its_first_executor_as_the_cause() -> None:
    error = "workers=2 needs as many slots at once, but yarn offers 0. Write workers=1."
    message = with_record(error, "User application exited with status 1", EXECUTOR + NO_JVM)
    assert message.splitlines()[0].endswith("ended with: Error: Could not create the Java Virtual Machine.")


def test_an_executor_that_was_lost_before_is_not_the_cause_of_an_error_in_user_code() -> None:
    error = "ValueError: no column y"
    assert with_record(error, "User application exited with status 1", EXECUTOR + NO_JVM) == error


def test_the_log_of_a_lost_executor_is_awaited_although_its_node_stores_it_after_that_of_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, executor = "container_1_0001_01_000001", "container_1_0001_01_000002"
    lost = CONTAINER_LOG.format(container=driver).replace(
        "the end", f"Container marked as failed: {executor} on host: gpu7. Exit status: 1."
    )
    failed = replace(ended(""), driver_logs=f"http://node1:8042/node/containerlogs/{driver}/root", log_status="RUNNING")
    answers = iter([lost, "", TrainyardError("there are no logs"), CONTAINER_LOG.format(container=executor)])

    class Manager(ResourceManager):
        def application(self, id: str) -> Application:
            return failed

    def run(name: str, *arguments: str, failure: str) -> str:
        answer = next(answers)
        if isinstance(answer, TrainyardError):
            raise answer
        return answer

    monkeypatch.setattr(java_programs, "run", run)
    monkeypatch.setattr(logs, "FIRST_READ_SECONDS", 0.01)
    found = postmortem.log_containers(Manager(("http://rm",), "root"), failed, failed=True, log=print)
    assert found.executor == f"executor {executor} on node gpu7:\nthe end\n"
