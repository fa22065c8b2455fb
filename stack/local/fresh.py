"""Install this checkout as a user does, with the newest packages, and run the README's quick start in an empty folder.

    python -m stack.local.fresh

The other tests run with the locked versions. When this fails, the last lines name the versions that differ from them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.docs.pages import blocks
from trainyard.schemas.runs import outcomes

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "fresh"
UV = Path(sys.executable).with_name("uv")
MIN_ACCURACY = 0.9
OURS = ("AIRFLOW", "PYTHON", "SPARK", "TRAINYARD", "VIRTUAL_ENV")
SHOWN_CHARACTERS = 8000


class FailedCommandError(Exception):
    """A command failed; the message has the end of its output."""


def main() -> int:
    """Install, run the quick start, and return 0 if its model is good; else print the versions of packages."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    environment, work = FOLDER / "env", FOLDER / "work"
    work.mkdir(parents=True)
    try:
        wheel = build_wheel(FOLDER)
        create_environment(environment)
        install(environment, f"{wheel}[cluster]")
        print(run_quick_start(work, environment))
        check_accuracy(work)
    except FailedCommandError as error:
        print(f"{error}\n\n{describe_packages(environment)}", file=sys.stderr)
        return 1
    shutil.rmtree(FOLDER)
    return 0


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout, by way of the source distribution, and return its path."""
    run([str(UV), "build", "--quiet", "--out-dir", str(folder), str(ROOT)], folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def create_environment(environment: Path) -> None:
    """Make an empty environment with the Python of this one."""
    run([str(UV), "venv", "--quiet", "--python", sys.executable, str(environment)], environment.parent)


def install(environment: Path, *requirements: str) -> None:
    """Install requirements, and options of `uv pip install`, into an environment."""
    command = [str(UV), "pip", "install", "--quiet", "--python", str(environment), *requirements]
    run(command, environment.parent)


def install_beside(environment: Path, wheel: Path) -> None:
    """Install a wheel into an empty environment, and let it import the packages of this one."""
    install(environment, "--no-deps", str(wheel))
    ours = find_packages(Path(sys.executable).parents[1])
    (find_packages(environment) / "ours.pth").write_text(f"{ours}\n")
    program = environment / "bin" / "airflow"
    program.write_text(f"#!{environment}/bin/python\nfrom airflow.__main__ import main\n\nmain()\n")
    program.chmod(0o755)


def find_packages(environment: Path) -> Path:
    """Return the folder of an environment's packages."""
    return next(environment.glob("lib/python*/site-packages"))


def link_bytecode(environment: Path) -> None:
    """Link the compiled modules of this environment into another one with the same versions.

    Python compiles the others: it compares the time of a source, which uv keeps. That takes half a minute otherwise.
    """
    ours, theirs = find_packages(Path(sys.executable).parents[1]), find_packages(environment)
    for cache in ours.rglob("__pycache__"):
        target = theirs / cache.relative_to(ours)
        if target.parent.is_dir() and not target.exists():
            shutil.copytree(cache, target, copy_function=os.link)


def write_quick_start(folder: Path) -> None:
    """Write the files of the README's quick start into a folder."""
    for block in blocks(ROOT / "README.md"):
        if block.file:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text)


def run_quick_start(folder: Path, environment: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run the quick start of the README in a folder, word by word; return what its commands print."""
    write_quick_start(folder)
    (commands,) = (block.text for block in blocks(ROOT / "README.md") if block.kind == "sh installed")
    path = f"export PATH={environment}/bin:$PATH\n"
    return run(["bash", "-euo", "pipefail", "-c", path + commands], folder, variables)


def check_accuracy(folder: Path) -> None:
    """Check the model of the quick start that ran in a folder.

    Raises:
        FailedCommandError: A stage did not succeed, or the accuracy is not above `MIN_ACCURACY`.
    """
    (run_folder,) = (folder / "storage" / "runs" / "flowers").iterdir()
    records = {record.task_key.task: record for record in outcomes.read_run(str(run_folder))}
    statuses = {task: record.status for task, record in records.items()}
    if statuses != dict.fromkeys(("export", "train", "evaluate"), "succeeded"):
        raise FailedCommandError(f"the stages of the quick start are {statuses}")
    if (accuracy := records["evaluate"].output["metrics"]["accuracy"]) <= MIN_ACCURACY:
        raise FailedCommandError(f"the accuracy of the quick start is {accuracy}; expected more than {MIN_ACCURACY}")


def run(command: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None) -> str:
    """Run a command in a folder, without the variables of this checkout; return what it prints.

    Raises:
        FailedCommandError: It failed.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    done = subprocess.run(
        command, cwd=folder, env=kept | dict(variables or {}), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        texts = (text[-SHOWN_CHARACTERS:] for text in (done.stdout, done.stderr))
        raise FailedCommandError("\n".join((f"status {done.returncode} of {command}", *texts)))
    return done.stdout


def describe_packages(environment: Path) -> str:
    """Return the packages of an environment whose versions are not the locked ones, and how many there are."""
    folders = map(str, environment.glob("lib/python*/site-packages"))
    installed: dict[str, str] = {
        canonicalize_name(each.name): each.version for each in distributions(path=list(folders))
    }
    lines = list_differences(installed, (ROOT / "requirements.txt").read_text())
    return "\n".join((f"{len(installed)} packages, of which {len(lines)} differ from requirements.txt:", *lines))


def list_differences(installed: Mapping[str, str], locked: str) -> list[str]:
    """Return a line for each package that is installed in another version than the locked one, or not locked.

    Args:
        installed: The versions by the names of packages.
        locked: The text of the lock.
    """
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)", locked, re.MULTILINE))
    return [
        f"{name} {version} (locked: {versions.get(name, 'not at all')})"
        for name, version in sorted(installed.items())
        if versions.get(name) != version
    ]


if __name__ == "__main__":
    sys.exit(main())
