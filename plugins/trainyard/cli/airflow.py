"""Commands about DAGs, the installation and the cluster."""

from __future__ import annotations

import argparse
import json
from typing import Any

from trainyard.cli.output import add_output, show
from trainyard.errors import TrainyardError, reason


def add_commands(commands: Any) -> None:
    """Add `plan`, `preflight`, `doctor` and `pools` to a parser's commands."""
    plan = commands.add_parser("plan", help="print the Spark application of each task of a DAG, and submit none")
    plan.set_defaults(run=_plan)
    preflight = commands.add_parser("preflight", help="check each task of a DAG against the cluster, and run none")
    preflight.set_defaults(run=_preflight)
    for command in (plan, preflight):
        command.add_argument("dag_id", help="the id of the DAG")
        command.add_argument("--dags-folder", help="folder or file with the DAG; default: Airflow's DAGs folder")
    doctor = commands.add_parser("doctor", help="check the installation: Java, connections, storage, cluster, nodes")
    doctor.set_defaults(run=_doctor)
    doctor.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")
    doctor.add_argument("--spark-conn-id", default="spark_default", help="connection with the Spark master")
    pools = commands.add_parser("pools", help="print Airflow pools for the cluster's GPUs, for `airflow pools import`")
    pools.set_defaults(run=_pools)
    for command in (plan, preflight, doctor):
        add_output(command)


def _plan(chosen: argparse.Namespace) -> int:
    from trainyard.jobs import dry_run

    plans = dry_run.plan_dag(_dag(chosen.dag_id, chosen.dags_folder))
    show(chosen, plans, lambda: dry_run.as_text(plans))
    return 0


def _preflight(chosen: argparse.Namespace) -> int:
    from trainyard.checks.preflight import check_dag
    from trainyard.jobs.dry_run import plan_dag
    from trainyard.planning.finding import as_text

    findings = check_dag(plan_dag(_dag(chosen.dag_id, chosen.dags_folder)))
    show(chosen, findings, lambda: as_text(findings))
    return 1 if any(finding.problem for finding in findings) else 0


def _doctor(chosen: argparse.Namespace) -> int:
    from trainyard.checks import doctor

    checks = list(doctor.run_checks(chosen.conn_id, chosen.spark_conn_id))
    show(chosen, checks, lambda: doctor.as_text(checks))
    return 1 if any(check.fix for check in checks) else 0


def _pools(_: argparse.Namespace) -> int:
    from trainyard.yarn import capacity, cluster

    print(json.dumps(capacity.pools(cluster.take_snapshot()), indent=1))
    return 0


def _dag(dag_id: str, folder: str | None) -> Any:
    from trainyard.compat import import_dag_bag  # after main has set the level of Airflow's log

    bag = import_dag_bag()(dag_folder=folder)
    if dag_id not in bag.dags:
        errors = "".join(f"\n{path}: {reason(Exception(error)) or error}" for path, error in bag.import_errors.items())
        raise TrainyardError(f"there is no DAG {dag_id!r} in {bag.dag_folder}; it has {sorted(bag.dags)}.{errors}")
    return bag.dags[dag_id]
