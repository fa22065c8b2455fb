"""Run training scripts that others have published, unchanged, and write the page of results.

    python -m stack.published [NAME ...]

Each script is fetched at a pinned commit and run by a ScriptOperator on two workers, in `build/published/NAME`, where
its log is. `results.json` has the last result of each script, which one that cannot be fetched keeps; the page
`docs/how-to/training/published-scripts.md` is rendered from it.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import sys
from collections.abc import Sequence
from pathlib import Path

from stack.published import packages, page, results, trial
from stack.published.packages import MissingPackagesError
from stack.published.repositories import MissingRepositoryError
from stack.published.results import Result
from stack.published.scripts import SCRIPTS, Script, select_scripts

RESULTS = Path(__file__).parent / "results.json"
PAGE = trial.ROOT / "docs" / "how-to" / "training" / "published-scripts.md"
PACKAGES = ("torch", "lightning", "accelerate", "transformers", "datasets", "horovod", "torchvision")


def main(names: Sequence[str]) -> int:
    """Run scripts, record each as soon as it has ended, and return 1 if one failed or could not be run."""
    failed = False
    for script in select_scripts(names):
        print(f"{script.name} ...", flush=True)
        result = run_script(script)
        print(f"{script.name} {result.status}: {result.reason or result.evidence}", flush=True)
        failed = failed or result.status in {"failed", "not run"}
        recorded = results.load(RESULTS.read_text()) if RESULTS.exists() else {}
        if result.status != "not run" or script.name not in recorded:
            recorded[script.name] = result
        RESULTS.write_text(results.dump(recorded))
        PAGE.write_text(page.render(SCRIPTS, recorded))
    return int(failed)


def run_script(script: Script) -> Result:
    """Run a script, and return what its output has shown."""
    date = datetime.date.today().isoformat()
    try:
        status, seconds, output = trial.run(script)
    except (MissingRepositoryError, MissingPackagesError) as error:
        return Result(
            script.repository.commit, date, "not run", reason=str(error),
            arguments=script.arguments, variables=script.variables,
        )  # fmt: skip
    return results.build_result(script, date, status, seconds, output, read_versions())


def read_versions() -> dict[str, str]:
    """Return the versions of the packages that scripts import, as far as they are installed."""
    paths = [str(packages.install()), *sys.path]
    installed = {found.name: found.version for found in importlib.metadata.distributions(path=paths)}
    return {name: installed[name] for name in PACKAGES if name in installed}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
