"""Run the same job with several systems, each in an environment of its own, and write the page of results.

    python -m bench.peers [--on {local,yarn}] [--rounds 2] [--scenarios run worker orchestrator label] [NAME ...]

Systems alternate. On YARN are Trainyard and SparkSubmitOperator, on a cluster of three nodes that is started for it.
`results.json` has every trial of the last time that a system ran in a scenario; `docs/explanation/comparison.md` has
the tables that are rendered from it. Logs are in `build/peers/NAME/SCENARIO`.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers import dataset, environments, page, results, trial
from bench.peers.places import Local, Place
from bench.peers.scenarios import SCENARIOS, Scenario
from bench.peers.systems import PLACES, ROOT, YARN, System
from bench.peers.trial import Trial

FOLDER = ROOT / "build" / "peers"


def main() -> int:
    names = sorted({system.job for systems in PLACES.values() for system in systems})
    scenarios = list(dict.fromkeys(name for group in SCENARIOS.values() for name in group))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"systems, of {', '.join(names)}; by default all")
    parser.add_argument("--on", choices=list(PLACES), help="where; by default in both places")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each system in scenarios that have several")
    parser.add_argument("--scenarios", nargs="+", default=scenarios, choices=scenarios)
    parser.add_argument("--home", type=Path, default=FOLDER / "hadoop", help="folder of the cluster")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a run that is ended kills its processes
    if unknown := [name for name in options.names if name not in names]:
        parser.error(f"there is no system {unknown[0]!r}; use one of {', '.join(names)}")
    for where in [options.on] if options.on else PLACES:
        systems = [system for system in PLACES[where] if system.job in (options.names or names)]
        chosen = {name: scenario for name, scenario in SCENARIOS[where].items() if name in options.scenarios}
        if systems and chosen:
            with contextlib.ExitStack() as stack:
                compare(systems, open_place(where, options.home, stack), chosen, options.rounds)
    print(page.render_tables(results.load()))
    return 0


def open_place(where: str, home: Path, stack: contextlib.ExitStack) -> Place:
    """Return a place; what it runs ends with the stack.

    Args:
        where: The name of the place.
        home: The folder of the cluster.
        stack: Where the end of the cluster is entered.
    """
    if where != YARN:
        return Local()
    from bench.peers.yarn import Yarn

    return stack.enter_context(Yarn.launch(home.resolve()))


def compare(systems: Sequence[System], place: Place, scenarios: Mapping[str, Scenario], rounds: int) -> None:
    """Run the jobs of systems in one place, and write their results after each.

    Args:
        systems: The systems.
        place: Where they run.
        scenarios: What happens to them, by name.
        rounds: How often a scenario with several rounds runs.
    """
    ready = {system: environments.prepare(system) for system in systems}
    for name, scenario in scenarios.items():
        suffix = "-wrong-label" if scenario.wrong_label else ""
        source = dataset.write(FOLDER / f"{scenario.workload.name}{suffix}", scenario.workload, scenario.wrong_label)
        trials: dict[str, list[Trial]] = {}
        for number in range(rounds if scenario.rounds else 1):
            for system, environment in ready.items():
                print(f"{system.name} {name} {number + 1} ...", flush=True)
                folder = FOLDER / system.name / name
                result = trial.run(system, environment, place, scenario, folder, source)
                print(f"  {result}", flush=True)
                trials.setdefault(system.name, []).append(result)
                versions = environments.read_versions(environment, system.packages)
                results.record(system, name, trials[system.name], versions)
                page.write(results.load())


if __name__ == "__main__":
    sys.exit(main())
