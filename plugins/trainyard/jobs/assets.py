"""Name the assets of outputs. No connection is read, because names are needed while a DAG is parsed."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from airflow.sdk import DAG, Asset

from trainyard.files import uris
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.jobs.options.validation import is_pending

MAX_KEY = 250
"""The characters of a key of a partition that Airflow's database has room for."""
_REPEATED_SLASHES = re.compile(r"(?<=[^:/])//+")


def asset(name: str, conn_id: str = TrainyardHook.default_conn_name) -> Asset:
    """Return the asset of an output, for the schedule of a DAG.

    Its name is the output's, or `trainyard://CONN_ID/NAME` for a name below the storage root of another connection,
    without slashes that change nothing. In its URI, which Airflow wants in ASCII, other letters are percent-encoded.

    Args:
        name: The output, as the operator that writes it names it: a name below the storage root, or a URI.
        conn_id: The connection of type `trainyard` of that operator.
    """
    name = _REPEATED_SLASHES.sub("/", name).rstrip("/")
    if conn_id != TrainyardHook.default_conn_name and not uris.is_absolute(name):
        name = uris.join(f"trainyard://{conn_id}", name)
    return Asset(name, quote(name, safe=string.printable))


def output_asset(name: Any, conn_id: str) -> Asset | None:
    """Return the asset of an output; None for no output, or one whose name or connection is still a template."""
    return None if not isinstance(name, str) or is_pending([name, conn_id]) else asset(name, conn_id)


def emits_partitions(dag: DAG | None) -> bool:
    """Return whether asset events of a DAG name partitions; such events start no DAG without partitions."""
    timetable = getattr(dag, "timetable", None)
    return getattr(timetable, "partitioned_at_runtime", False)  # Airflow 3.3 has it


def select_keys(partitions: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the partitions that Airflow takes as keys of events, and the others."""
    keys: tuple[list[str], list[str]] = ([], [])
    for name in partitions:
        keys[not name.strip() or len(name) > MAX_KEY].append(name)
    return keys
