"""Commands about DAGs, runs and the cluster."""

from __future__ import annotations

import argparse
import json
from typing import Any

from trainyard.errors import TrainyardError, reason


def add_commands(commands: Any) -> None:
    """Add `plan`, `preflight`, `doctor`, `pools` and `show` to a parser's commands."""
    plan = commands.add_parser("plan", help="print the Spark application of each task of a DAG, and submit none")
    plan.set_defaults(run=_plan)
    preflight = commands.add_parser("preflight", help="check each task of a DAG against the cluster, and run none")
    preflight.set_defaults(run=_preflight)
    for command in (plan, preflight):
        command.add_argument("dag_id", help="the id of the DAG")
        command.add_argument("--dags-folder", help="folder or file with the DAG; default: Airflow's DAGs folder")
    plan.add_argument("--json", action="store_true", help="print everything, as JSON")
    doctor = commands.add_parser("doctor", help="check the installation: Java, connections, storage, cluster, nodes")
    doctor.set_defaults(run=_doctor)
    doctor.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")
    doctor.add_argument("--spark-conn-id", default="spark_default", help="connection with the Spark master")
    pools = commands.add_parser("pools", help="print Airflow pools for the cluster's GPUs, for `airflow pools import`")
    pools.set_defaults(run=_pools)
    reap = commands.add_parser(
        "reap", help="list the applications of a storage; --kill ends those whose task has ended"
    )
    reap.set_defaults(run=_reap)
    reap.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")
    reap.add_argument("--kill", action="store_true", help="end the orphaned applications")
    show = commands.add_parser("show", help="print the result of each task of a run")
    show.set_defaults(run=_show)
    show.add_argument("run_name", metavar="RUN", help="a DAG, for its newest run, or STORAGE/runs/DAG_ID/RUN_ID")
    show.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")


def _plan(chosen: argparse.Namespace) -> int:
    from trainyard.jobs import dry_run

    plans = dry_run.plan_dag(_dag(chosen.dag_id, chosen.dags_folder))
    print(dry_run.as_json(plans) if chosen.json else dry_run.as_text(plans))
    return 0


def _preflight(chosen: argparse.Namespace) -> int:
    from trainyard.checks.preflight import check_dag
    from trainyard.jobs.dry_run import plan_dag
    from trainyard.planning.finding import as_text

    findings = check_dag(plan_dag(_dag(chosen.dag_id, chosen.dags_folder)))
    print(as_text(findings))
    return 1 if any(finding.problem for finding in findings) else 0


def _doctor(chosen: argparse.Namespace) -> int:
    from trainyard.checks import doctor

    checks = list(doctor.run_checks(chosen.conn_id, chosen.spark_conn_id))
    print(doctor.as_text(checks))
    return 1 if any(check.fix for check in checks) else 0


def _pools(_: argparse.Namespace) -> int:
    from trainyard.yarn import capacity, cluster

    print(json.dumps(capacity.pools(cluster.take_snapshot()), indent=1))
    return 0


def _reap(chosen: argparse.Namespace) -> int:
    from trainyard.checks.airflow_database import list_ids, read_state
    from trainyard.hooks.trainyard import TrainyardHook
    from trainyard.jobs import orphans
    from trainyard.yarn import cluster

    manager = cluster.resource_manager()
    root = TrainyardHook(chosen.conn_id).get_conn().storage
    airflow = list_ids()
    live = orphans.list_live(manager, root, airflow, read_state)
    print(orphans.as_text(live, root) if live else "No application runs.")
    if not chosen.kill:
        return 0
    killed, refused = orphans.kill_orphans(manager, live, print)
    print(f"Ended {len(killed)} orphaned application{'s' * (len(killed) != 1)}.")
    orphans.remove_stale_owners(root, live, airflow, read_state)
    return 1 if refused else 0


def _show(chosen: argparse.Namespace) -> int:
    from trainyard.cli.show import newest_run, show
    from trainyard.hooks.trainyard import TrainyardHook

    if "/" in chosen.run_name:
        print(show(chosen.run_name))
    else:
        print(show(newest_run(TrainyardHook(chosen.conn_id).get_conn().storage, chosen.run_name)))
    return 0


def _dag(dag_id: str, folder: str | None) -> Any:
    from trainyard.compat import import_dag_bag  # after main has set the level of Airflow's log

    bag = import_dag_bag()(dag_folder=folder)
    if dag_id not in bag.dags:
        errors = "".join(f"\n{path}: {reason(Exception(error)) or error}" for path, error in bag.import_errors.items())
        raise TrainyardError(f"there is no DAG {dag_id!r} in {bag.dag_folder}; it has {sorted(bag.dags)}.{errors}")
    return bag.dags[dag_id]
