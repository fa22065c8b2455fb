"""The command `trainyard`: its parser, and how errors are printed."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from trainyard import __version__
from trainyard.cli import airflow, applications, dataset, environment, model, retention, runs
from trainyard.deadlines import end_process
from trainyard.errors import ArgumentError, TrainyardError, summarize
from trainyard.files import uris
from trainyard.files.filesystems import while_person_waits
from trainyard.schemas.version_suffix import split_version

CLOSED_OUTPUT = 128 + signal.SIGPIPE


def run() -> NoReturn:
    """Run the command of the command line, and end the process with its exit status."""
    status = main()
    end_process(status)
    sys.exit(status)


def main(arguments: list[str] | None = None) -> int:
    """Run one command, and return its exit status.

    Returns:
        0, 1 after an error, 2 for arguments that are not valid, 141 if the reader of the output has closed it, as
        `head` does.
    """
    if arguments is None:
        # Else the output has lines of the log, and an error of a DAG is printed twice.
        os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "CRITICAL"
    chosen = parser().parse_args(arguments)
    try:
        with while_person_waits():
            _use_connection(chosen)
            status = int(chosen.run(chosen))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it once more
        return CLOSED_OUTPUT
    except ArgumentError as error:
        print(error, file=sys.stderr)
        return 2
    except TrainyardError as error:
        print(error, file=sys.stderr)
    except (OSError, RuntimeError) as error:  # clients of storages raise both
        print(f"this command failed with {summarize(error)}", file=sys.stderr)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("trainyard"):
            raise
        print(
            f"this command needs {error.name}, which is not installed here. Install airflow-trainyard[cluster].",
            file=sys.stderr,
        )
    except Exception as error:
        if not _is_of_database(error):
            raise
        print(
            f"Airflow's database cannot be read: {summarize(error)}. Run `airflow db migrate` if it has no tables, or "
            "correct sql_alchemy_conn in section [database] of Airflow's configuration.",
            file=sys.stderr,
        )
    return 1


def _is_of_database(error: Exception) -> bool:
    """Return whether a database has raised an error; where none is used, its client may not be installed."""
    client = sys.modules.get("sqlalchemy.exc")
    return client is not None and isinstance(error, client.DBAPIError)


def _use_connection(chosen: argparse.Namespace) -> None:
    """Read the connection of a command that is given a URI of HDFS, or the name of a dataset or model.

    It says whether HDFS is read over HTTP, and where the storage is. A path that exists here is not a name.
    """
    if "conn_id" not in chosen or not find_spec("airflow"):
        return
    given = {name: value for name, value in vars(chosen).items() if isinstance(value, str)}
    names = {name: given[name] for name in ("dataset", "model", "other") if _is_name(given.get(name, "/"))}
    if names or any(value.startswith("hdfs://") for value in given.values()):
        from trainyard.hooks.trainyard import TrainyardHook

        root = TrainyardHook(chosen.conn_id).get_conn().storage
        vars(chosen).update({name: uris.resolve(root, value) for name, value in names.items()})


def _is_name(value: str) -> bool:
    is_name = not uris.is_absolute(value) and uris.is_valid_name(value)
    return is_name and not Path(split_version(value)[0]).exists()


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    found = argparse.ArgumentParser(
        prog="trainyard",
        description="Distributed PyTorch training on a Spark and YARN cluster, orchestrated by Airflow.",
    )
    found.add_argument("--version", action="version", version=f"trainyard {__version__}", help="print the version")
    commands = found.add_subparsers(title="commands", metavar="COMMAND", required=True)
    airflow.add_commands(commands)
    runs.add_commands(commands)
    applications.add_commands(commands)
    dataset.add_commands(commands)
    model.add_commands(commands)
    environment.add_commands(commands)
    retention.add_commands(commands)
    return found
