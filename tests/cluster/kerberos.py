"""A Hadoop that requires Kerberos: `make kerberos`, which installs a KDC and its client libraries."""

from __future__ import annotations

import json
import os
import re
import shlex

import pytest

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import Shell

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]

TRAINYARD = "PYTHONPATH=plugins python -m trainyard"
# Authentication, command and file in the NameNode's log.
AUDIT_LINE = re.compile(r"auth:(\w+)\)\s+ip=\S+\s+cmd=(\w+)\s+src=/trainyard/(\S+)")


@pytest.fixture(scope="session")
def kerberos() -> bool:
    return True


@pytest.fixture(scope="module")
def digits(shell: Shell) -> None:
    """Run the pipeline on HDFS and YARN."""
    process = shell("airflow dags test digits")
    assert process.returncode == 0, process.stdout[-6000:]


def read_log(cluster: Cluster) -> str:
    return (cluster.home / "log" / "namenode.log").read_text()


def test_containers_write_with_tokens_and_airflow_with_its_ticket(cluster: Cluster, digits: None) -> None:
    created = [(how, path) for how, command, path in AUDIT_LINE.findall(read_log(cluster)) if command == "create"]
    assert {how for how, path in created if path.startswith(("digits/dataset/", "digits/model/"))} == {"TOKEN"}
    assert {how for how, path in created if "/specs/" in path} == {"KERBEROS"}


def test_the_doctor_finds_all_prerequisites(shell: Shell) -> None:
    output = shell(f"{TRAINYARD} doctor || true").stdout
    fixes = [line.split("  ")[0] for line in output.splitlines() if line.rstrip().endswith("FIX")]
    assert fixes == ["triggerer"], output


def test_preflight_finds_that_the_example_fits(shell: Shell) -> None:
    process = shell(f"{TRAINYARD} preflight digits")
    assert process.returncode == 0, process.stdout + process.stderr


def test_hdfs_is_written_over_http_with_the_ticket(cluster: Cluster, shell: Shell) -> None:
    storage = json.dumps({"storage": cluster.storage, "webhdfs": "webhdfs_default"})
    variables = {
        "AIRFLOW__CORE__SECURITY": "kerberos",
        "AIRFLOW_CONN_WEBHDFS_DEFAULT": f"webhdfs://localhost:{cluster.ports['namenode.http']}",
        "AIRFLOW_CONN_TRAINYARD_DEFAULT": json.dumps({"conn_type": "trainyard", "extra": storage}),
    }
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    output = shell(f"export {settings}; {TRAINYARD} doctor || true").stdout
    assert re.search(r"^storage of trainyard_default .* ok$", output, re.MULTILINE), output
    trials = [line for line in read_log(cluster).splitlines() if "src=/trainyard/.trial-" in line]
    assert any("auth:KERBEROS" in line and "proto=webhdfs" in line for line in trials)


def test_a_missing_ticket_is_reported_with_its_fix(shell: Shell) -> None:
    process = shell(f"export KRB5CCNAME={os.devnull}; {TRAINYARD} preflight digits")
    assert process.returncode != 0
    assert "the cluster requires Kerberos, and there is no valid ticket" in process.stdout + process.stderr
    assert "`airflow kerberos` or `kinit`" in process.stdout + process.stderr


def test_tokens_that_containers_cannot_use_are_reported_before_anything_starts(cluster: Cluster, shell: Shell) -> None:
    change_configuration = (
        'copy=$(mktemp -d); cp -r "$HADOOP_CONF_DIR"/. "$copy"; export HADOOP_CONF_DIR="$copy"; '
        'sed -i "/token.service.use_ip/d" "$copy/core-site.xml"'
    )
    process = shell(f"{change_configuration}; {TRAINYARD} preflight digits")
    assert process.returncode != 0
    assert "Set hadoop.security.token.service.use_ip to false in core-site.xml" in process.stdout, process.stderr
