"""Commands about applications on YARN."""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from trainyard.cli.confirmation import add_confirmation, is_confirmed
from trainyard.cli.output import add_output, report, show
from trainyard.errors import TrainyardError
from trainyard.schemas.runs.worker_progress import format_seconds
from trainyard.text import table

if TYPE_CHECKING:
    from trainyard.yarn.resource_manager import Application, ResourceManager


def add_commands(commands: Any) -> None:
    """Add the group `app` to a parser's commands."""
    group = commands.add_parser("app", help="list applications on YARN, read their logs, and end them")
    actions = group.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the applications on YARN that have not ended")
    listing.set_defaults(run=_list)
    logs = actions.add_parser("logs", help="print the end of the driver's log of an application")
    logs.set_defaults(run=_logs)
    kill = actions.add_parser("kill", help="end an application; its task fails, and may submit another one")
    kill.set_defaults(run=_kill)
    reap = actions.add_parser("reap", help="list the applications of a storage, and end those whose task has ended")
    reap.set_defaults(run=_reap)
    reap.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")
    for command in (logs, kill):
        command.add_argument(
            "application", metavar="APPLICATION", help="the id, for example application_1790000000_0001"
        )
    for command in (listing, reap):
        add_output(command)
    for command in (kill, reap):
        add_confirmation(command)


def as_text(applications: list[Application], now: float) -> str:
    """Return a table of applications at a time in seconds since the epoch."""
    rows = [
        [one.id, one.name, one.state, one.queue, one.user, format_seconds(max(now - one.started, 0))]
        for one in applications
    ]
    return table(["application", "task", "state", "queue", "user", "age"], rows)


def find(manager: ResourceManager, id: str) -> Application:
    """Return an application of Trainyard. Raises TrainyardError if it does not exist, or is not one."""
    from trainyard.planning.paths import COMMON_TAG

    application = manager.application(id)
    if application is None:
        raise TrainyardError(f"the ResourceManager has no application {id!r}; `trainyard app list` has those.")
    if COMMON_TAG not in application.tags:
        raise TrainyardError(f"{id} was not submitted by Trainyard; use `yarn application` for it.")
    return application


def _list(chosen: argparse.Namespace) -> int:
    from trainyard.planning.paths import COMMON_TAG
    from trainyard.yarn import cluster
    from trainyard.yarn.resource_manager import LIVE

    applications = cluster.resource_manager().tagged(COMMON_TAG, LIVE)
    show(chosen, applications, lambda: as_text(applications, time.time()) if applications else "No application runs.")
    return 0


def _logs(chosen: argparse.Namespace) -> int:
    from trainyard.yarn import cluster, logs

    manager = cluster.resource_manager()
    application = find(manager, chosen.application)
    if application.state == "RUNNING":
        read = {name: logs.read_running_log(manager, application, name)[1] for name in ("stdout", "stderr")}
        files = {name: text.decode(errors="replace") for name, text in read.items()}
    elif application.live:
        raise TrainyardError(f"{application.id} is {application.state}; its driver has not started.")
    else:
        files = logs.read_driver_log(manager, application)
    if not files:
        raise TrainyardError(f"YARN has no logs of {application.id}: yarn.log-aggregation-enable may be false.")
    for name, text in files.items():
        print(f"--- {name}\n{text}")
    return 0


def _kill(chosen: argparse.Namespace) -> int:
    from trainyard.yarn import cluster

    manager = cluster.resource_manager()
    application = find(manager, chosen.application)
    if not application.live:
        print(f"{application.id} has ended: {application.state}.")
        return 0
    if not is_confirmed(chosen, f"End {application.id}, {application.name}"):
        return 0
    manager.kill(application.id)
    print(f"Ended {application.id}, {application.name}.")
    return 0


def _reap(chosen: argparse.Namespace) -> int:
    from trainyard.checks.airflow_database import list_ids, read_state
    from trainyard.hooks.trainyard import TrainyardHook
    from trainyard.jobs import orphans
    from trainyard.schemas.runs.owner import remove_owner
    from trainyard.yarn import cluster

    manager = cluster.resource_manager()
    root = TrainyardHook(chosen.conn_id).get_conn().storage
    airflow = list_ids()
    live = orphans.list_live(manager, root, airflow, read_state)
    show(chosen, live, lambda: orphans.as_text(live, root) if live else "No application runs.")
    orphaned = sum(one.verdict == "orphaned" for one in live)
    stale = orphans.list_stale_owners(root, live, airflow, read_state)
    question = f"End {_count(orphaned)}{_count_records(', and remove', stale)}"
    if (orphaned or stale or chosen.dry_run) and not is_confirmed(chosen, question):
        return 0
    killed, refused = orphans.kill_orphans(manager, live, partial(report, chosen))
    for submission in stale:
        remove_owner(root, submission)
    report(chosen, f"Ended {_count(len(killed))}{_count_records(', and removed', stale)}.")
    return 1 if refused else 0


def _count(orphaned: int) -> str:
    return f"{orphaned} orphaned application{'s' * (orphaned != 1)}"


def _count_records(verb: str, submissions: list[str]) -> str:
    """Return what happens to the owner records of submissions; "" without any."""
    count = len(submissions)
    records = "1 record of a task that has ended" if count == 1 else f"{count} records of tasks that have ended"
    return f"{verb} {records}" if count else ""
