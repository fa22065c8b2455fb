"""Run a real Hadoop on this machine, without containers.

    python -m stack.hadoop start|wait|stop|status --home DIR

`start` creates the cluster if there is none, starts its daemons, and returns when every node has registered with its
label, as does `wait`; `stop` ends all daemons. With `--kerberos` a new cluster requires Kerberos for HDFS, YARN and
their pages.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from stack.hadoop.cluster import Cluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("start", "wait", "stop", "status"))
    parser.add_argument("--home", type=Path, default=Path(".run/hadoop"), help="folder of the cluster")
    parser.add_argument("--kerberos", action="store_true", help="a new cluster requires Kerberos")
    arguments = parser.parse_args()
    home = arguments.home.resolve()
    if arguments.command == "start":
        cluster = Cluster.open(home) if (home / "cluster.json").exists() else Cluster.create(home, arguments.kerberos)
        cluster.start()
        cluster.wait()
        print(f"ResourceManager {cluster.get_url('resourcemanager.http')}  NameNode {cluster.get_url('namenode.http')}")
        print(f"source {home}/env.sh to submit applications")
    elif not (home / "cluster.json").exists():
        raise SystemExit(f"there is no cluster in {home}; create one with start")
    elif arguments.command == "wait":
        Cluster.open(home).wait()
    elif arguments.command == "stop":
        Cluster.open(home).stop()
    else:
        print(Cluster.open(home).find_problem() or "up")


if __name__ == "__main__":
    main()
