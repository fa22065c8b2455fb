"""A test bed of hosts on one Linux machine, as root: a switch, and hosts that are connected to it.

The network of the machine itself is not changed. When the process that runs the bed has ended, only files in its
folder are left.
"""

from __future__ import annotations

import ipaddress
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stack.hosts.host import INTERFACE, NAMESPACES, Host, Switch, build_limit

UNAVAILABLE = 69
"""The exit status of a program that needs what this machine does not have, EX_UNAVAILABLE of sysexits.h."""
NETWORKS = {4: "10.99.0.0/24", 6: "fd99::/64"}
"""The network of a bed, by the version of IP. No one else sees it."""
FIRST_NUMBER = 10
TMP = Path("/tmp")  # noqa: S108 (each host has one of its own)
PROGRAMS = ("ip", "tc", "unshare", "nsenter", "setpriv")
ROOT = Path(__file__).parents[2]
_TRIAL = f"""
ip link add bridge type bridge
ip link add port type veth peer name {INTERFACE}
tc qdisc replace dev port root {" ".join(build_limit("1mbit"))}
"""
"""A script that creates what a bed needs of the kernel."""


def find_obstacle() -> str:
    """Return why this machine cannot run a bed, in one sentence; "" if it can."""
    if not sys.platform.startswith("linux"):
        return f"Hosts are namespaces of Linux, and this is {sys.platform}."
    if os.geteuid() != 0:
        return "Hosts need root, which creates their networks: run this as root."
    if missing := [program for program in PROGRAMS if not shutil.which(program)]:
        return f"Hosts need {', '.join(missing)}: install iproute2 and util-linux."
    create = ["unshare", *NAMESPACES, "--fork", "bash", "-euc", _TRIAL]
    process = subprocess.run(create, capture_output=True, text=True, check=False)
    if process.returncode:
        return f"Hosts need namespaces, bridges, veth and tbf of Linux: {process.stderr.strip()}."
    return ""


@contextmanager
def run_hosts(
    names: Sequence[str], folder: Path, disks: Mapping[str, int] | None = None, version: int = 4
) -> Iterator[dict[str, Host]]:
    """Run hosts while the context is active; they reach each other by their names.

    Args:
        names: The names of the hosts.
        folder: An existing folder for their files.
        disks: The size in MB of the /tmp of hosts that have one in memory.
        version: The version of IP, 4 or 6.
    """
    switch = Switch(ipaddress.ip_network(NETWORKS[version]))
    shared = _list_shared([ROOT, Path(sys.prefix), folder])
    hosts = {
        name: Host(name, number, switch, folder / name, shared, (disks or {}).get(name))
        for number, name in enumerate(names, FIRST_NUMBER)
    }
    table = "".join(f"{host.address} {host.name}\n" for host in hosts.values())
    with ExitStack() as stack:
        stack.callback(switch.stop)
        switch.start()
        for host in hosts.values():
            host.files.mkdir(exist_ok=True)
            (host.files / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{table}")
            (host.files / "resolv.conf").write_text("")
            stack.callback(host.switch_off)
            host.boot()
        yield hosts


def _list_shared(folders: Sequence[Path]) -> list[Path]:
    """Return the folders below /tmp, which each host replaces by its own."""
    resolved = {folder.resolve() for folder in folders}
    return sorted(folder for folder in resolved if folder.is_relative_to(TMP))
