"""The programs that need Hadoop's classes, and what is read of logs. On a cluster: tests/cluster/test_diagnosis.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.clusters.yarn import probe
from trainyard.errors import TrainyardError
from trainyard.yarn import java_programs, logs
from trainyard.yarn.resource_manager import Application, ResourceManager

CONTAINER_LOG = """Container: {container} on node1_8041
LogType:stderr
LogLastModifiedTime:Sun Nov 29 21:00:00 +0000 2026
LogLength:8
LogContents:
the end
End of LogType:stderr
"""

SITE = {
    "yarn.resourcemanager.address": "127.0.0.1:1",
    "yarn.resourcemanager.connect.max-wait.ms": "1000",
    "yarn.resourcemanager.connect.retry-interval.ms": "500",
    "yarn.nodemanager.remote-app-log-dir": "/nowhere",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "arguments", "error"),
    [
        (logs.READER, ["application_1795290845344_0001", "ada", "100"], r"java\.io\.\w+: .*/nowhere/ada"),
        (probe.SUBMITTER, ['{"name": "x"}'], "to localhost:1 failed on connection exception"),
    ],
)
def test_the_programs_that_need_hadoops_classes_find_them_and_report_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, arguments: list[str], error: str
) -> None:
    entries = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in SITE.items())
    (tmp_path / "yarn-site.xml").write_text(f"<configuration>{''.join(entries)}</configuration>")
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>ipc.client.connect.max.retries</name><value>0</value></property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(TrainyardError, match=f"^it failed: .*{error}"):
        java_programs.run(program, *arguments, failure="it failed")


def test_lost_containers_come_with_their_hosts_in_the_order_of_the_log() -> None:
    """YarnAllocator.processCompletedContainers of Spark 4.2; the scheduler repeats each loss."""
    log = (
        "ERROR YarnClusterScheduler: Lost executor 2 on gpu7.example.com: Container from a bad node: "
        "container_1_0001_01_000003 on host: gpu7.example.com. Exit status: 1. Diagnostics: Exception\n"
        "Container marked as failed: container_1_0001_01_000002 on host: gpu8. Exit status: -104. Diagnostics: x\n"
        "Container marked as failed: container_1_0001_01_000003 on host: gpu7.example.com. Exit status: 1.\n"
        "Completed container container_1_0001_01_000004 on host: gpu9 (state: COMPLETE, exit status: 0)\n"
    )
    assert logs.lost_containers(log) == {
        "container_1_0001_01_000003": "gpu7.example.com", "container_1_0001_01_000002": "gpu8"
    }  # fmt: skip


def test_a_program_has_the_configuration_the_jars_and_the_java_options_of_spark_submit() -> None:
    env = {
        "SPARK_HOME": "/nowhere", "HADOOP_CONF_DIR": "/etc/hadoop", "SPARK_CONF_DIR": "/etc/spark",
        "SPARK_DIST_CLASSPATH": "/opt/hadoop/*", "SPARK_SUBMIT_OPTS": "-Djava.security.krb5.conf=/etc/k.conf",
    }  # fmt: skip
    built = java_programs.build_environment(env)
    hadoop, spark, jars, distribution = built["CLASSPATH"].split(":")
    assert (hadoop, spark, distribution) == ("/etc/hadoop", "/etc/spark", "/opt/hadoop/*")
    assert jars.endswith("/pyspark/jars/*"), "SPARK_HOME is of another version"
    assert built["JDK_JAVA_OPTIONS"].split()[0] == "-Djava.security.krb5.conf=/etc/k.conf"


@pytest.mark.parametrize(
    ("program", "arguments"), [(logs.READER, ["application_1_0001", "ada", "100"]), (probe.SUBMITTER, ["{}"])]
)
def test_the_jvm_of_a_program_is_that_of_java_home_and_no_other_user_can_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, arguments: list[str]
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(TrainyardError, match=r"^it failed"):
        java_programs.run(program, *arguments, failure="it failed")
    assert "--enable-auth" in (tmp_path / "arguments").read_text()


def test_the_drivers_log_is_read_before_a_node_that_is_lost_has_aggregated_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until a lost node expires, the state of the aggregation is RUNNING, ten minutes by default."""
    driver = "container_1_0001_01_000001"
    application = Application(
        "application_1_0001", "FINISHED", "SUCCEEDED", "etl", "", "", 0.0,
        driver_logs=f"http://node1:8042/node/containerlogs/{driver}/root", log_status="RUNNING",
    )  # fmt: skip
    answers = iter(["", TrainyardError("there are no logs"), CONTAINER_LOG.format(container=driver)])

    class Manager(ResourceManager):
        def application(self, id: str) -> Application:
            return application

    def run(name: str, *arguments: str, failure: str) -> str:
        answer = next(answers)
        if isinstance(answer, TrainyardError):
            raise answer
        return answer

    monkeypatch.setattr(java_programs, "run", run)
    monkeypatch.setattr(logs, "FIRST_READ_SECONDS", 0.01)
    assert logs.read_driver_log(Manager(("http://rm",), "root"), application) == {"stderr": "the end\n"}
