"""Run the same job with several systems, each in an environment of its own, and write the page of results.

    python -m bench.peers [--rounds 2] [--scenarios run worker orchestrator label] [NAME ...]

Systems alternate. `results.json` has every trial of the last time that a system ran in a scenario;
`docs/explanation/comparison.md` has the tables that are rendered from it. Logs are in `build/peers/NAME/SCENARIO`.
"""

from __future__ import annotations

import argparse
import signal
import sys

from bench.peers import dataset, environments, page, results, trial
from bench.peers.systems import ROOT, select
from bench.peers.trial import SCENARIOS, Trial

FOLDER = ROOT / "build" / "peers"
REPEATED = ("run", "worker")
"""The scenarios of which there are several rounds."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="systems; by default all")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each system in the scenarios `run` and `worker`")
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS), choices=list(SCENARIOS))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a run that is ended kills its processes
    source = dataset.write(FOLDER / "source")
    wrong = dataset.write(FOLDER / "source-wrong-label", wrong_label=True)
    ready = {system: environments.prepare(system) for system in select(options.names)}
    for scenario in options.scenarios:
        trials: dict[str, list[Trial]] = {}
        for number in range(options.rounds if scenario in REPEATED else 1):
            for system, environment in ready.items():
                print(f"{system.name} {scenario} {number + 1} ...", flush=True)
                folder = FOLDER / system.name / scenario
                result = trial.run(system, environment, scenario, folder, wrong if scenario == "label" else source)
                print(f"  {result}", flush=True)
                trials.setdefault(system.name, []).append(result)
                versions = environments.read_versions(environment, system.packages)
                results.record(system, scenario, trials[system.name], versions)
                page.write(results.load())
    print(page.render_tables(results.load()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
