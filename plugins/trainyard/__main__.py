"""`python -m trainyard`: plan a DAG without running it, hold it against the cluster; see what is set up; show a run."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from trainyard.contract.errors import TrainyardError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainyard", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    plan = commands.add_parser("plan", help="print what each task of a DAG would submit")
    preflight = commands.add_parser("preflight", help="hold each task of a DAG against the cluster, running none")
    for command in (plan, preflight):
        command.add_argument("dag_id")
        command.add_argument("--dags-folder", help="folder or file to look in; default: Airflow's own")
    plan.add_argument("--json", action="store_true", help="everything, as JSON")
    commands.add_parser("pools", help="print Airflow pools for the cluster's GPUs, for `airflow pools import`")
    doctor = commands.add_parser("doctor", help="look at all that applications need: connections, storage, cluster")
    doctor.add_argument("--conn-id", default="trainyard_default", help="connection that says where things are stored")
    doctor.add_argument("--spark-conn-id", default="spark_default", help="connection that says where to submit")
    show = commands.add_parser("show", help="print what became of a run")
    show.add_argument("run", help="a DAG, for its newest run, or a run's directory, STORAGE/runs/DAG_ID/RUN_ID")
    chosen = parser.parse_args(arguments)
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    try:
        return {"plan": _plan, "preflight": _preflight, "doctor": _doctor, "pools": _pools, "show": _show}[
            chosen.command
        ](chosen)
    except TrainyardError as error:
        print(error, file=sys.stderr)
        return 1


def _plan(chosen: argparse.Namespace) -> int:
    from trainyard import preview

    found = preview.previews(_dag(chosen.dag_id, chosen.dags_folder))
    print(preview.as_json(found) if chosen.json else preview.as_text(found))
    return 0


def _preflight(chosen: argparse.Namespace) -> int:
    from trainyard import preflight
    from trainyard.preview import previews
    from trainyard.rehearsal import rehearse

    found = rehearse(previews(_dag(chosen.dag_id, chosen.dags_folder)))
    print(preflight.as_text(found))
    return 1 if any(finding.problem for finding in found) else 0


def _doctor(chosen: argparse.Namespace) -> int:
    from trainyard import doctor

    checks = list(doctor.examine(chosen.conn_id, chosen.spark_conn_id))
    print(doctor.as_text(checks))
    return 1 if any(check.fix for check in checks) else 0


def _pools(_: argparse.Namespace) -> int:
    from trainyard import capacity
    from trainyard.yarn import cluster

    print(json.dumps(capacity.pools(cluster.survey()), indent=1))
    return 0


def _dag(dag_id: str, folder: str | None) -> Any:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=folder)
    if dag_id not in bag.dags:
        broken = "".join(f"\n{path}:\n{error}" for path, error in bag.import_errors.items())
        raise TrainyardError(f"there is no DAG {dag_id!r} in {bag.dag_folder}; it has {sorted(bag.dags)}.{broken}")
    return bag.dags[dag_id]


def _show(chosen: argparse.Namespace) -> int:
    from trainyard.connections import TrainyardHook
    from trainyard.show import newest_run, show

    is_directory = "/" in chosen.run
    print(show(chosen.run if is_directory else newest_run(TrainyardHook().get_conn().storage, chosen.run)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
