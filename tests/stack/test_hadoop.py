"""The Hadoop on this machine: what it tells the developer."""

from __future__ import annotations

from pathlib import Path

from stack.hadoop.cluster import Cluster
from stack.hadoop.kerberos import Kdc


def test_a_cluster_that_every_user_can_run_commands_on_says_so() -> None:
    assert "every user of this machine can run commands" in Cluster(Path("/x"), {}).warning
    assert Cluster(Path("/x"), {}, Kdc(Path("/x/kdc"), 1)).warning == ""
