"""`python -m trainyard`: plan a DAG without running it, show a run that was."""

from __future__ import annotations

import argparse
import os
import sys

from trainyard.contract.errors import TrainyardError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainyard", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    plan = commands.add_parser("plan", help="print what each task of a DAG would submit")
    plan.add_argument("dag_id")
    plan.add_argument("--dags-folder", help="folder or file to look in; default: Airflow's own")
    plan.add_argument("--json", action="store_true", help="everything, as JSON")
    show = commands.add_parser("show", help="print what became of a run")
    show.add_argument("run", help="a DAG, for its newest run, or a run's directory, STORAGE/runs/DAG_ID/RUN_ID")
    chosen = parser.parse_args(arguments)
    try:
        print(_plan(chosen.dag_id, chosen.dags_folder, chosen.json) if chosen.command == "plan" else _show(chosen))
    except TrainyardError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _plan(dag_id: str, folder: str | None, as_json: bool) -> str:
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    from airflow.dag_processing.dagbag import DagBag

    from trainyard import preview

    bag = DagBag(dag_folder=folder)
    if dag_id not in bag.dags:
        broken = "".join(f"\n{path}:\n{error}" for path, error in bag.import_errors.items())
        raise TrainyardError(f"there is no DAG {dag_id!r} in {bag.dag_folder}; it has {sorted(bag.dags)}.{broken}")
    found = preview.previews(bag.dags[dag_id])
    return preview.as_json(found) if as_json else preview.as_text(found)


def _show(chosen: argparse.Namespace) -> str:
    from trainyard.show import newest_run, show

    if "/" in chosen.run:
        return show(chosen.run)
    from trainyard.connections import TrainyardHook

    return show(newest_run(TrainyardHook().get_conn().storage, chosen.run))


if __name__ == "__main__":
    sys.exit(main())
