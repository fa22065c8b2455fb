"""A whole Hadoop that asks everybody for Kerberos: `make kerberos`, which installs a KDC and its client libraries."""

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
# How who asked was known, what was done, and to what, in the NameNode's own log.
AUDITED = re.compile(r"auth:(\w+)\)\s+ip=\S+\s+cmd=(\w+)\s+src=/trainyard/(\S+)")


@pytest.fixture(scope="session")
def kerberos() -> bool:
    return True


@pytest.fixture(scope="module")
def digits(shell: Shell) -> None:
    """The pipeline has run, on HDFS and YARN."""
    done = shell("airflow dags test digits")
    assert done.returncode == 0, done.stdout[-6000:]


def log(cluster: Cluster) -> str:
    return (cluster.home / "log" / "namenode.log").read_text()


def test_containers_write_with_their_tokens_and_airflow_with_its_ticket(cluster: Cluster, digits: None) -> None:
    written = [(how, path) for how, command, path in AUDITED.findall(log(cluster)) if command == "create"]
    assert {how for how, path in written if path.startswith(("digits/dataset/", "digits/model/"))} == {"TOKEN"}
    assert {how for how, path in written if "/specs/" in path} == {"KERBEROS"}


def test_all_that_a_cluster_needs_is_found_there(shell: Shell) -> None:
    told = shell(f"{TRAINYARD} doctor || true").stdout
    fixes = [line.split("  ")[0] for line in told.splitlines() if line.rstrip().endswith("FIX")]
    assert fixes == ["triggerer"], told


def test_a_stage_fits_the_cluster_before_it_runs(shell: Shell) -> None:
    done = shell(f"{TRAINYARD} preflight digits")
    assert done.returncode == 0, done.stdout + done.stderr


def test_hdfs_is_written_over_http_with_the_ticket(cluster: Cluster, shell: Shell) -> None:
    storage = json.dumps({"storage": cluster.storage, "webhdfs": "webhdfs_default"})
    by_http = {
        "AIRFLOW__CORE__SECURITY": "kerberos",
        "AIRFLOW_CONN_WEBHDFS_DEFAULT": f"webhdfs://localhost:{cluster.ports['namenode.http']}",
        "AIRFLOW_CONN_TRAINYARD_DEFAULT": json.dumps({"conn_type": "trainyard", "extra": storage}),
    }
    settings = " ".join(f"{name}={shlex.quote(value)}" for name, value in by_http.items())
    told = shell(f"export {settings}; {TRAINYARD} doctor || true").stdout
    assert re.search(r"^storage of trainyard_default .* ok$", told, re.MULTILINE), told
    tried = [line for line in log(cluster).splitlines() if "src=/trainyard/.trial-" in line]
    assert any("auth:KERBEROS" in line and "proto=webhdfs" in line for line in tried)


def test_without_a_ticket_one_is_told_to_get_one(shell: Shell) -> None:
    done = shell(f"export KRB5CCNAME={os.devnull}; {TRAINYARD} preflight digits")
    assert done.returncode != 0
    assert "the cluster asks for Kerberos, and there is no valid ticket" in done.stdout + done.stderr
    assert "`airflow kerberos` or `kinit`" in done.stdout + done.stderr


def test_a_token_that_containers_would_not_find_is_said_before_anything_starts(cluster: Cluster, shell: Shell) -> None:
    told_otherwise = (
        'copy=$(mktemp -d); cp -r "$HADOOP_CONF_DIR"/. "$copy"; export HADOOP_CONF_DIR="$copy"; '
        'sed -i "/token.service.use_ip/d" "$copy/core-site.xml"'
    )
    done = shell(f"{told_otherwise}; {TRAINYARD} preflight digits")
    assert done.returncode != 0
    assert "Set hadoop.security.token.service.use_ip to false in core-site.xml" in done.stdout, done.stderr
