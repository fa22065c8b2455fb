"""Measure which faults the tests notice: change one expression at a time, and run the tests of the module.

mutmut imports from `src/` and changes what it finds there, so that it runs in a copy of the repository in which the
packages `trainyard.etl` and `trainyard.trainer` are folders and not links.

    python -m stack.local.mutants [--list] [MODULE ...]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPY = ROOT / "build" / "mutants"
EQUIVALENTS = ROOT / "tests" / "mutants.txt"
GOAL = 0.9

TESTS = {
    "planning/sizing": ["plugins/planning/test_sizing.py"],
    "planning/placement": ["plugins/planning/test_placement.py"],
    "planning/plan": ["plugins/planning/test_plan.py"],
    "diagnosis/diagnose": ["plugins/diagnosis/test_rules.py"],
    "diagnosis/memory": ["plugins/diagnosis/test_rules.py"],
    "jobs/reuse": ["plugins/jobs/test_reuse.py"],
    "models/promotion": ["plugins/models/test_promotion.py"],
    "schemas/datasets/fingerprint": ["plugins/schemas/datasets/test_fingerprint.py", "plugins/jobs/test_reuse.py"],
    "schemas/datasets/manifest": [
        "plugins/schemas/datasets/test_manifest.py",
        "plugins/schemas/datasets/test_versions.py",
    ],
    "schemas/datasets/versions": ["plugins/schemas/datasets/test_versions.py"],
    "yarn/capacity": ["plugins/yarn/test_capacity.py", "plugins/yarn/test_fit.py"],
    "yarn/lifecycle": ["plugins/yarn/test_lifecycle.py"],
    "etl/datasource/writing/quality": ["etl/datasource/writing/test_quality.py"],
    "etl/datasource/writing/statistics": ["etl/datasource/writing/test_statistics.py"],
    "etl/metrics/classification": ["etl/metrics/test_classification.py"],
    "etl/metrics/intervals": ["etl/metrics/test_intervals.py"],
    "etl/metrics/ranking": ["etl/metrics/test_ranking.py"],
    "etl/metrics/regression": ["etl/metrics/test_regression.py"],
    "etl/metrics/sums": ["etl/metrics/test_sums.py", "etl/metrics/test_custom.py", "etl/metrics/test_regression.py"],
    "trainer/data/mixture": ["trainer/data/test_mixture.py"],
    "trainer/data/order": ["trainer/data/test_order.py"],
    "trainer/data/weights": ["trainer/data/test_weights.py", "trainer/data/test_mixture.py"],
    "trainer/strategies/threshold": ["trainer/strategies/test_threshold.py"],
}
"""Pure modules, and the tests that cover each of them."""


@dataclass(frozen=True)
class Mutant:
    """A change of one expression that no test noticed.

    Attributes:
        name: mutmut's name.
        change: The changed line, before and after.
    """

    name: str
    change: tuple[str, str]

    def __str__(self) -> str:
        before, after = self.change
        return f"  {self.name}\n    - {before}\n    + {after}"


@dataclass(frozen=True)
class Result:
    """The mutants of one module that tests reach, those of them that survive, and the number that no test reaches."""

    module: str
    total: int
    survivors: tuple[Mutant, ...]
    unreached: int

    @property
    def killed(self) -> int:
        """How many mutants a test noticed."""
        return self.total - len(self.survivors)


def main(arguments: Sequence[str]) -> int:
    """Measure modules, print the survivors and scores, and return 1 if a score is below the goal."""
    parser = argparse.ArgumentParser(description="Measure which faults the tests notice.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="a module, for example planning/sizing")
    parser.add_argument("--list", action="store_true", help="list the modules")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(TESTS))
        return 0
    if unknown := [module for module in options.modules if module not in TESTS]:
        parser.error(f"{', '.join(unknown)}: not a module of the table; known are {', '.join(TESTS)}")
    equivalents = read_equivalents(EQUIVALENTS.read_text())
    failed = False
    for module in options.modules or TESTS:
        result = measure(module)
        remaining = [mutant for mutant in result.survivors if (module, *mutant.change) not in equivalents]
        noticeable = result.killed + len(remaining)
        score = result.killed / noticeable if noticeable else 1.0
        failed = failed or score < GOAL
        unreached = f"; {result.unreached} are in functions that only tests with Spark or workers reach, or none"
        summary = f"{module}: {score:.2f}, {result.killed} of {noticeable} are noticed"
        print(summary + unreached * bool(result.unreached), *remaining, sep="\n", flush=True)
    return int(failed)


def read_equivalents(text: str) -> set[tuple[str, str, str]]:
    """Return the module, the line before and the line after of each mutant that no test can notice."""
    return set(re.findall(r"^(\S+): .*\n    - (.*)\n    \+ (.*)$", text, re.MULTILINE))


def measure(module: str) -> Result:
    """Run the tests of a module against each of its mutants."""
    _copy_repository(module, TESTS[module])
    mutmut = [sys.executable, "-m", "mutmut"]
    # A forked child hangs in the threads of torch that its parent has started.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run([*mutmut, "run"], cwd=COPY, env=environment, check=False, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"mutmut failed for {module}:\n{run.stdout[-5000:]}{run.stderr[-5000:]}")
    meta = json.loads((COPY / "mutants" / f"{_source(module)}.meta").read_text())
    lines = subprocess.run([*mutmut, "results"], cwd=COPY, check=True, capture_output=True, text=True).stdout
    statuses = re.findall(r"^\s+(\S+): (.+)$", lines, re.MULTILINE)
    unreached = sum(status == "no tests" for _, status in statuses)
    survivors = []
    for name in [name for name, status in statuses if status not in ("timeout", "no tests")]:
        shown = subprocess.run([*mutmut, "show", name], cwd=COPY, check=True, capture_output=True, text=True).stdout
        survivors.append(Mutant(name, _read_change(shown)))
    return Result(module, len(meta["exit_code_by_key"]) - unreached, tuple(survivors), unreached)


def _copy_repository(module: str, tests: Sequence[str]) -> None:
    shutil.rmtree(COPY, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "plugins" / "trainyard", COPY / "src" / "trainyard", ignore=ignored)
    for folder in ("tests", "stack", "dags"):
        shutil.copytree(ROOT / folder, COPY / folder, ignore=ignored)
    settings = [
        "[tool.mutmut]",
        'source_paths = ["src"]',
        f'only_mutate = ["{_source(module)}"]',
        'also_copy = ["stack", "dags"]',
        f"pytest_add_cli_args_test_selection = {json.dumps([f'tests/{test}' for test in tests])}",
        'pytest_add_cli_args = ["-p", "no:cacheprovider", "-m", "not spark and not ranks"]',
    ]
    project = (ROOT / "pyproject.toml").read_text()
    (COPY / "pyproject.toml").write_text("\n".join([project, *settings, ""]))


def _source(module: str) -> str:
    return f"src/trainyard/{module}.py"


def _read_change(diff: str) -> tuple[str, str]:
    """Return the lines that a diff removes and adds, each as one."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++", "#"))]
    before, after = (" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return before, after


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
