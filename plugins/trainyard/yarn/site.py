"""Read the cluster's client configuration, which spark-submit reads too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trainyard.errors import TrainyardError
from trainyard.files import hadoop_conf

_MANAGER = "yarn.resourcemanager"


def folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of Hadoop's client configuration. Raises TrainyardError if there is none."""
    named = hadoop_conf.find_folder(environ)
    if not named or not Path(named, "yarn-site.xml").exists():
        raise TrainyardError(
            f"HADOOP_CONF_DIR={named or ''} has no yarn-site.xml; where Airflow runs, set it to the folder of the "
            "cluster's client configuration (core-site.xml, hdfs-site.xml, yarn-site.xml)."
        )
    return Path(named)


def core(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the properties in core-site.xml; empty if there is none."""
    return hadoop_conf.read_site("core-site.xml", environ)


def authentication(core: Mapping[str, str]) -> str:
    """Return how Hadoop's web pages authenticate users: `simple`, `kerberos`, or a class of the cluster's own."""
    return core.get("hadoop.http.authentication.type", "simple")


def resource_managers(site: Mapping[str, str]) -> tuple[str, ...]:
    """Return the URL of each ResourceManager: one or, with high availability, several."""
    secure = site.get("yarn.http.policy", "HTTP_ONLY") == "HTTPS_ONLY"
    key, scheme, port = ("webapp.https.address", "https", 8090) if secure else ("webapp.address", "http", 8088)
    enabled = site.get(f"{_MANAGER}.ha.enabled", "false").lower() == "true"
    ids = [f".{name.strip()}" for name in site.get(f"{_MANAGER}.ha.rm-ids", "").split(",")] if enabled else [""]
    urls = []
    for suffix in ids:
        host = site.get(f"{_MANAGER}.hostname{suffix}", "0.0.0.0").strip()  # noqa: S104
        address = site.get(f"{_MANAGER}.{key}{suffix}") or f"{host}:{port}"
        urls.append(f"{scheme}://{address.replace(f'${{{_MANAGER}.hostname{suffix}}}', host)}")
    return tuple(urls)
