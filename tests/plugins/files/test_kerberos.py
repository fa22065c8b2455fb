"""Who one is to a cluster that asks for Kerberos, and whether containers can use their tokens."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainyard.errors import TrainyardError
from trainyard.files import kerberos

SECURE = {"hadoop.security.authentication": "kerberos"}


@pytest.mark.parametrize("principal", ["me@REALM", "me/host.example@REALM", "me"])
def test_a_user_is_the_first_part_of_a_principal(principal: str) -> None:
    assert kerberos.primary(principal) == "me"


def test_a_token_for_one_name_node_by_its_name_is_not_found() -> None:
    why = kerberos.unusable_token(SECURE, "hdfs://namenode:8020/trainyard")
    assert why.startswith("hdfs://namenode:8020 is a single NameNode with Kerberos")
    assert "Set hadoop.security.token.service.use_ip to false in core-site.xml" in why


@pytest.mark.parametrize(
    ("core", "uri"),
    [
        ({}, "hdfs://namenode:8020/trainyard"),
        (SECURE | {"hadoop.security.token.service.use_ip": "false"}, "hdfs://namenode:8020/trainyard"),
        (SECURE, "hdfs://10.1.2.3:8020/trainyard"),
        (SECURE, "hdfs://pair/trainyard"),
        (SECURE, "s3://bucket/trainyard"),
        (SECURE, "/mnt/trainyard"),
    ],
)
def test_any_other_token_is_found_or_not_needed(core: dict[str, str], uri: str) -> None:
    assert kerberos.unusable_token(core, uri) == ""


def test_storage_with_kerberos_is_refused_without_a_ticket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, value = next(iter(SECURE.items()))
    (tmp_path / "core-site.xml").write_text(
        f"<configuration><property><name>{name}</name><value>{value}</value></property></configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "gssapi", None)
    kerberos.require_ticket("file:///data")
    with pytest.raises(TrainyardError, match=r"requires Kerberos; install airflow-trainyard\[kerberos\]"):
        kerberos.require_ticket("hdfs://namenode:8020/data")
