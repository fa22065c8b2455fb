"""Run parts of the tests with other versions, each row in an environment of its own, and write the page of results.

    python -m stack.matrix [ROW ...]

A row runs in a copy of the working tree in `build/matrix/ROW`, with its log beside it. `results.json` has the last
result of each row; the page `docs/reference/compatibility.md` is rendered from it.
"""

from __future__ import annotations

import datetime
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from stack.matrix import page, results
from stack.matrix.environments import ROOT, MissingEnvironmentError, prepare_environment
from stack.matrix.results import Result
from stack.matrix.rows import ROWS, Row, select_rows

FOLDER = ROOT / "build" / "matrix"
RESULTS = Path(__file__).parent / "results.json"
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
STOP_SECONDS = 120
"""The time in which tests that are ended stop their daemons."""


def main(names: Sequence[str]) -> int:
    """Run rows, record each as soon as it has ended, and return 1 if tests failed."""
    failed = False
    for row in select_rows(names):
        print(f"{row.name} ...", flush=True)
        result = run_row(row)
        print(f"{row.name} {page.describe(result)}", flush=True)
        failed = failed or result.status == "failed"
        recorded = results.load(RESULTS.read_text()) if RESULTS.exists() else {}
        recorded[row.name] = result
        RESULTS.write_text(results.dump(recorded))
        PAGE.write_text(page.render(ROWS, recorded))
    return int(failed)


def run_row(row: Row) -> Result:
    """Run the tests of a row in a copy of the working tree."""
    folder = FOLDER / row.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = shlex.join(["pytest", "-q", *row.tests])
    date = datetime.date.today().isoformat()
    try:
        environment = prepare_environment(row, folder)
    except MissingEnvironmentError as error:
        return Result(command, date, "not run", reason=str(error))
    checkout, log, report = folder / "checkout", folder / "pytest.log", folder / "report.xml"
    _copy_checkout(checkout)
    (checkout / ".venv").symlink_to(environment)
    started = time.monotonic()
    status = _run_tests(row, checkout, log, report)
    seconds = round(time.monotonic() - started)
    text = report.read_text() if report.exists() else ""
    result = results.build_result(command, date, seconds, status, text, log.read_text(errors="replace"))
    shutil.rmtree(checkout)
    return result


def _copy_checkout(checkout: Path) -> None:
    """Copy the files of the working tree that git does not ignore, except a link to an environment."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    for name in names:
        source, target = ROOT / name, checkout / name
        if name not in ("", ".venv") and os.path.lexists(source):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def _run_tests(row: Row, checkout: Path, log: Path, report: Path) -> int:
    """Run the tests of a row to their end, or for its `minutes`; return their exit status."""
    pytest = ["pytest", "-q", "--continue-on-collection-errors", f"--junitxml={report}", *row.tests]
    excluded = ("TRAINYARD_", "AIRFLOW_", "PYTHON", "VIRTUAL_ENV", "PYENV_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(excluded)}
    command = ["bash", "-euo", "pipefail", "-c", f". stack/local/env.sh && exec {shlex.join(pytest)}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=checkout, env=variables | dict(row.variables), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            return process.wait(row.minutes * 60)
        except subprocess.TimeoutExpired:
            output.write(f"\nerror: the tests were ended after {row.minutes} minutes\n".encode())
            return _stop(process)
        except KeyboardInterrupt:
            _stop(process)  # the interrupt may have reached this process alone
            raise


def _stop(process: subprocess.Popen[bytes]) -> int:
    """Interrupt pytest, so that its fixtures end their daemons; kill it if that takes too long."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
