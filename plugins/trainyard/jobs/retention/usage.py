"""Find what is in use in a storage root: by Airflow's active DAG runs, and by applications on YARN."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.jobs.orphans import LiveApplication, StateReader, is_over
from trainyard.jobs.retention.decision import Kind, Usage
from trainyard.planning.paths import run_directory
from trainyard.schemas.runs.owner import Owner, find_owner


def find_usage(
    root: str,
    active: Iterable[tuple[str, str]],
    live: Sequence[LiveApplication],
    airflow: Collection[str],
    read_state: StateReader,
    archives: Iterable[str] = (),
) -> Usage:
    """Return what is in use.

    Args:
        root: The storage root, a URI.
        active: The DAG and the run of each of Airflow's DAG runs that has not ended, or has a task that has not.
        live: The applications of this storage that have not ended.
        airflow: The identities of this Airflow.
        read_state: Returns Airflow's state of a task.
        archives: The URIs of archives that connections and Spark's configuration name.
    """
    active = list(active)
    items = {run_directory(root, dag_id, run_id): "its DAG run is active" for dag_id, run_id in active}
    for uri in archives:  # which may write the storage root in another way
        name = uri.rpartition("/")[2]
        items[uris.join(root, "environments", name)] = "a connection or Spark's configuration names it"
    kinds: dict[Kind, str] = {}
    if active or live:
        kinds["environments"] = "a DAG run or an application is active"
    if unknown := next((one for one in live if one.owner is None), None):
        kinds["runs"] = kinds["checkpoints"] = f"{unknown.application.id} is active, and has no owner record"
    live_tags = {tag for one in live for tag in one.application.tags}
    for name in [file.path for file in storage.find_files(uris.join(root, "owners"))]:
        if name.startswith(".") or not name.endswith(".json"):
            continue
        submission, uri = name.removesuffix(".json"), uris.join(root, "owners", name)
        try:
            owner = find_owner(root, submission)
        except TrainyardError:
            kinds["runs"] = kinds["checkpoints"] = f"{uri} cannot be read"
            items[uri] = "it cannot be read"
            continue
        if owner and (submission in live_tags or not _is_stale(owner, airflow, read_state)):
            items[uri] = "its application or task is active"
            items[run_directory(root, owner.task_key.dag_id, owner.task_key.run_id)] = f"{uri} names it"
    return Usage(items, kinds)


def _is_stale(owner: Owner, airflow: Collection[str], read_state: StateReader) -> bool:
    """Return whether the owner is a task of this Airflow that has ended, or does not exist."""
    return owner.airflow in airflow and is_over(read_state(owner.task_key))
