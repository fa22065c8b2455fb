"""Run a DAG on a Hadoop of several hosts, which are namespaces of this machine, and print which host ran what.

python -m stack.hosts.demo DAG --home DIR
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from stack.hosts.bed import ROOT, UNAVAILABLE, find_obstacle, run_hosts
from stack.hosts.hadoop import GATEWAY, HOSTS, run_hadoop


@contextlib.contextmanager
def _create(home: Path) -> Iterator[None]:
    """Create the folder of a run, which no other run uses while the context is active. It is kept afterwards."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"{home} is in use by another run; set --home to another folder") from None
        shutil.rmtree(home, ignore_errors=True)
        (home / "hosts").mkdir(parents=True)
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dag")
    parser.add_argument(
        "--home", type=Path, default=Path(".run/hosts"), help="folder of all files; it is removed first"
    )
    arguments = parser.parse_args()
    if obstacle := find_obstacle():
        print(obstacle, file=sys.stderr)
        return UNAVAILABLE
    home = arguments.home.resolve()
    with (
        _create(home),
        run_hosts(HOSTS, home / "hosts") as hosts,
        run_hadoop(hosts, home / "hadoop"),
    ):
        print(f"Hosts: {', '.join(f'{host.name} {host.address}' for host in hosts.values())}", flush=True)
        environment = os.environ | {"TRAINYARD_HOME": str(home)}
        demo = hosts[GATEWAY].run("stack/hadoop/demo.sh", arguments.dag, folder=ROOT, env=environment, check=False)
    return demo.returncode


if __name__ == "__main__":
    sys.exit(main())
