"""The command `trainyard gc`: remove what a storage root no longer needs."""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

from trainyard.cli.confirmation import add_confirmation, is_confirmed
from trainyard.cli.output import add_output, report, show
from trainyard.jobs.retention import decision
from trainyard.jobs.retention.decision import KINDS, Decision
from trainyard.text import table


def add_commands(commands: Any) -> None:
    """Add `gc` to a parser's commands."""
    gc = commands.add_parser("gc", help="list old runs, checkpoints, versions and environments, and remove them")
    gc.set_defaults(run=_gc)
    gc.add_argument("--older-than", default="90d", metavar="AGE", help="the minimum age, for example 30d (default 90d)")
    gc.add_argument(
        "--keep", type=int, default=5, metavar="N",
        help="how many of the newest runs of each DAG, versions of each dataset and model, and environments stay "
        "(default 5)",
    )  # fmt: skip
    gc.add_argument("--only", action="append", choices=KINDS, help="a kind to remove; may be repeated (default: all)")
    gc.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")
    gc.add_argument("--spark-conn-id", default="spark_default", help="connection with the Spark master")
    add_output(gc)
    add_confirmation(gc)


def as_text(decided: Decision) -> str:
    """Return a table of what is removed, the totals, and why what is old enough stays."""
    rows = [
        [one.item.kind, one.item.uri, decision.describe_age(one.age), _describe_bytes(one.bytes), one.why]
        for one in decided.removals
    ]
    lines = [table(["kind", "URI", "age", "size", "why"], rows)] if rows else []
    for kind in KINDS:
        sizes = [one.bytes for one in decided.removals if one.item.kind == kind]
        if sizes:
            lines.append(f"{kind}: {len(sizes)}, {_describe_bytes(sum(sizes))}")
    lines.append(f"total: {len(rows)}, {_describe_bytes(sum(one.bytes for one in decided.removals))}")
    lines += [f"kept although old enough: {count} {reason}" for reason, count in sorted(decided.kept.items())]
    return "\n".join(lines)


def _gc(chosen: argparse.Namespace) -> int:
    options = decision.build_options(chosen.older_than, chosen.keep, chosen.only)

    from trainyard.checks.airflow_database import list_active_runs, list_ids, read_state
    from trainyard.checks.connections import list_environments
    from trainyard.clusters.registry import find_cluster
    from trainyard.hooks.spark import spark_connection
    from trainyard.hooks.trainyard import TrainyardHook
    from trainyard.jobs import orphans
    from trainyard.jobs.retention import inventory, removal, usage
    from trainyard.planning.runtime import spark_defaults
    from trainyard.planning.shipping.environment import find_archives

    root = TrainyardHook(chosen.conn_id).get_conn().storage
    cluster = find_cluster(spark_connection(chosen.spark_conn_id))
    now = time.time()
    stored = inventory.scan(root, options.kinds, now)
    # After the scan, which takes time: what began meanwhile is in use.
    airflow = list_ids()
    applications = cluster.list_applications()
    live = orphans.list_live(applications, root, airflow, read_state) if applications else []
    archives = list(find_archives(spark_defaults()).values())
    if "environments" in options.kinds:
        archives += list_environments()
    in_use = usage.find_usage(root, list_active_runs(), live, airflow, read_state, archives)
    decided = decision.decide(stored, in_use, options, now)
    show(chosen, decided, lambda: as_text(decided))
    if not decided.removals or not is_confirmed(chosen, f"Remove {len(decided.removals)} items"):
        return 0
    removed = removal.remove(decided.removals, now, partial(report, chosen))
    report(chosen, f"Removed {len(removed)} of {len(decided.removals)}.")
    return 0 if len(removed) == len(decided.removals) else 1


def _describe_bytes(count: float) -> str:
    """Return a size in the largest unit of which it has one."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
