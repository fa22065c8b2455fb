"""The addresses of ResourceManagers in Hadoop's configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trainyard.errors import TrainyardError
from trainyard.files import hadoop_conf
from trainyard.yarn import cluster, site


def test_properties_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "yarn-site.xml"
    file.write_text("<configuration><property><name> a.b </name><value>1 </value></property></configuration>")
    assert hadoop_conf.read_properties(file) == {"a.b": "1"}


def test_the_address_of_one_resource_manager_follows_from_its_host_name() -> None:
    assert site.resource_managers({"yarn.resourcemanager.hostname": "rm"}) == ("http://rm:8088",)


def test_an_address_wins_over_a_host_name() -> None:
    properties = {"yarn.resourcemanager.hostname": "rm", "yarn.resourcemanager.webapp.address": "web:9000"}
    assert site.resource_managers(properties) == ("http://web:9000",)


def test_every_resource_manager_of_a_high_availability_pair_is_listed() -> None:
    properties = {
        "yarn.resourcemanager.ha.enabled": "true",
        "yarn.resourcemanager.ha.rm-ids": "rm1, rm2",
        "yarn.resourcemanager.hostname.rm1": "one",
        "yarn.resourcemanager.webapp.address.rm2": "two:18088",
    }
    assert site.resource_managers(properties) == ("http://one:8088", "http://two:18088")


def test_the_policy_https_only_selects_https_addresses() -> None:
    properties = {"yarn.http.policy": "HTTPS_ONLY", "yarn.resourcemanager.hostname": "rm"}
    assert site.resource_managers(properties) == ("https://rm:8090",)


@pytest.mark.parametrize("environ", [{}, {"HADOOP_CONF_DIR": "/nowhere"}])
def test_a_missing_configuration_is_refused_with_where_to_put_it(environ: dict[str, str]) -> None:
    with pytest.raises(TrainyardError, match=r"HADOOP_CONF_DIR=.* has no yarn-site.xml; where Airflow runs, set it"):
        site.folder(environ)


@pytest.mark.parametrize(
    ("core", "kind"), [({}, "simple"), ({"hadoop.http.authentication.type": "kerberos"}, "kerberos")]
)
def test_the_authentication_follows_the_configuration(core: dict[str, str], kind: str) -> None:
    assert site.authentication(core) == kind


def test_kerberos_without_its_library_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = "<property><name>{}</name><value>{}</value></property>"
    for file, name, value in (
        ("core-site.xml", "hadoop.http.authentication.type", "kerberos"),
        ("yarn-site.xml", "yarn.resourcemanager.hostname", "rm"),
    ):
        (tmp_path / file).write_text(f"<configuration>{entry.format(name, value)}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setitem(sys.modules, "requests_gssapi", None)
    with pytest.raises(TrainyardError, match=r"install airflow-trainyard\[kerberos\] where Airflow runs"):
        cluster.resource_manager()
