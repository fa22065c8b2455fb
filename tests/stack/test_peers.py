"""The comparison with other systems: lines, marks, and the tables that are rendered from the results."""

from __future__ import annotations

import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bench.peers import __main__, dataset, lines, marks, page, places, processes, results, systems, trial, yarn
from bench.peers.marks import Marks, Step
from bench.peers.results import Result
from bench.peers.scenarios import IMAGES, SCENARIOS, TABLE, Workload
from bench.peers.trial import Following, Trial
from tests.conftest import ROOT

FIGURES = {"run": "seconds", "worker": "next_step"}
"""The scenarios in the README, and what it has of them."""

CODE = '''"""A docstring
of two lines."""

# a comment
import measure
from torch import nn


def build():
    text = """
    a value"""
    return wrap(  # not counted
        nn.Linear(1, 2),
    )  # not counted
'''
RUN = Trial("2026-11-25 00:18", 0, 65.0, 9.1, first_step=20.2, rows_per_second=8189, accuracy=0.9389, steps=2345)
KILLED = replace(RUN, steps=2814, next_step=4.5)
LEFT = replace(RUN, status=-9, left=("java", "python", "python"), still_training=True)
FOLLOWED = replace(
    RUN, status=-9, left=("mnist_yarn.train",), still_training=True, steps=3600, following=Following(0, 81.4, 2, 1)
)
FAILED = replace(RUN, status=1, error="IndexError: Target 10 is out of bounds | `x`", steps=1500)


def test_lines_with_code_are_counted_and_those_that_measure_are_not() -> None:
    assert lines.count(CODE) == 2 + 5


@pytest.mark.parametrize("system", [*systems.SYSTEMS, *systems.SYSTEMS_ON_YARN], ids=lambda system: system.name)
def test_a_system_has_a_job_that_marks_its_steps(system: systems.System) -> None:
    text = "".join(file.read_text() for file in system.files)
    assert "measure." in text and sum(lines.count(file.read_text()) for file in system.files) > 20


def test_an_unknown_system_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["peers", "--on", "yarn", "rya"])
    with pytest.raises(SystemExit):
        __main__.main()
    assert "there is no system 'rya'; use one of horovod, lightning, ray, torchdistr" in capsys.readouterr().err


def test_a_job_on_yarn_is_the_local_one_with_another_dag() -> None:
    for system, local in zip(systems.SYSTEMS_ON_YARN, systems.SYSTEMS, strict=False):
        assert system.job == local.name and system.name != local.name
        own, other = ({file.name for file in files} for files in (system.files, local.files))
        assert own - other == {"yarn.py"} and other - own == {"dag.py"}


def test_each_place_has_its_scenarios() -> None:
    assert set(SCENARIOS) == set(systems.PLACES)
    for scenarios in SCENARIOS.values():
        assert all(scenario.killed == "command" for scenario in scenarios.values() if scenario.following != "none")


def test_requirements_pin_each_version_and_name_no_registry() -> None:
    for file in sorted(Path(dataset.__file__).parent.glob("requirements/*.txt")):
        entries = file.read_text().splitlines()
        assert all("==" in entry and "://" not in entry and not entry.startswith("-") for entry in entries), file


def test_marks_are_read_in_the_order_of_time_without_an_incomplete_line() -> None:
    found = marks.parse("step 1 12 3.5\nstep 0 11 3.25\naccuracy 0.9375\nstep 0 11 4")
    assert found == Marks((Step(0, 11, 3.25), Step(1, 12, 3.5)), 0.9375)
    assert marks.parse("step 0 1") == Marks()


def test_the_rate_of_the_last_epoch_includes_the_time_between_epochs() -> None:
    own = [Step(0, 1, at) for at in (1.0, 2.0, 6.0, 7.0)]
    assert marks.compute_rate(own, rows=100, steps_per_epoch=2) == 20.0
    assert marks.compute_rate(own, rows=100, steps_per_epoch=3) is None


def test_the_next_step_is_that_of_the_process_that_replaces_the_killed_one() -> None:
    found = Marks((Step(1, 7, 1.0), Step(1, 7, 2.1), Step(0, 6, 2.2), Step(1, 8, 5.0)))
    assert marks.find_next_step(found, rank=1, killed_pid=7, killed_at=2.0) == Step(1, 8, 5.0)
    assert marks.find_next_step(found, rank=1, killed_pid=8, killed_at=5.0) is None


def test_worker_groups_are_counted_by_the_process_of_rank_0() -> None:
    found = Marks((Step(0, 7, 1.0), Step(1, 8, 1.1), Step(0, 9, 2.0), Step(0, 7, 3.0), Step(0, 9, 4.0)))
    assert found.groups == [(1.0, 3.0), (2.0, 4.0)] and marks.count_at_once(found.groups) == 2
    assert marks.count_at_once([(1.0, 2.0), (2.5, 3.0)]) == 1 and marks.count_at_once([]) == 0


def test_repeated_steps_are_those_beyond_the_epochs() -> None:
    assert RUN.repeated_steps == 0 and KILLED.repeated_steps == 469 and FAILED.repeated_steps == 0


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("a\n[info] IndexError: Target 10 is out of bounds.\nKeyError\nbye", "KeyError"),
        ("  ray.exceptions.RayTaskError(IndexError): index", "ray.exceptions.RayTaskError(IndexError): index"),
        ("\x1b[36m(worker)\x1b[0m IndexError: index\x1b[32m [twice]\x1b[0m", "IndexError: index [twice]"),
        ("OSError: x\n\tat org.Client.warpIOException(Client.java:1)\nCaused by: AError: y", "OSError: x"),
        ("RuntimeError: failed\nDiagnostics: status 1\nbye", "RuntimeError: failed Diagnostics: status 1"),
        ("Errors: none\n", ""),
    ],
)
def test_the_last_error_of_a_log_is_found(log: str, error: str) -> None:
    assert trial.find_error(log) == error


def test_the_first_failed_attempt_of_a_log_is_found() -> None:
    log = "2026-11-25T09:03:56Z [info ] x\n{} [error    ] Task failed with exception  [task]\n"
    both = log.format("1970-01-01T00:00:02.500000Z") + log.format("1970-01-01T00:00:09Z")
    assert trial.find_first_failure(both) == 2.5 and trial.find_first_failure("Task failed with exception") is None


def test_processes_are_found_by_the_token_in_their_environment() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "print('it runs', flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PEERS_RUN": "token-1"},
    )  # fmt: skip
    try:
        assert process.stdout and process.stdout.readline() == b"it runs\n"
        assert list(processes.find_processes("token-1")) == [process.pid]
        assert processes.find_processes("token") == {}
    finally:
        processes.end("token-1", process)
    assert processes.find_processes("token-1") == {} and process.returncode == -9


@pytest.mark.parametrize("workload", [IMAGES, TABLE], ids=lambda workload: workload.name)
def test_a_source_has_the_same_rows_each_time_and_one_wrong_label_if_asked(tmp_path: Path, workload: Workload) -> None:
    small = replace(workload, rows=60, test_rows=20, files=3)
    folders = [dataset.write(tmp_path / name, small, wrong_label=name == "c") for name in "abc"]
    first, again, wrong = (pq.read_table(folder / "fold=train").combine_chunks() for folder in folders)
    assert first.equals(again) and first.num_rows == 60 and first["image"].equals(wrong["image"])
    changed = np.flatnonzero(np.asarray(first["label"]) != np.asarray(wrong["label"]))
    assert changed.tolist() == [30] and wrong["label"][30].as_py() == 10
    assert dataset.write(tmp_path / "a", small) == tmp_path / "a"


def test_results_are_read_as_they_were_stored() -> None:
    trials = {"run": [RUN], "orchestrator": [LEFT, FOLLOWED]}
    stored = {"ray": Result(64, {"ray": "2.60.0"}, "python train.py", trials)}
    text = results.dump(stored)
    assert results.parse(text) == stored and text.count('"following"') == 1


def test_the_nodes_of_yarn_have_the_variables_of_the_marks_and_the_shared_code() -> None:
    common = {"PEERS_MARKS": "/marks", "PYTHONPATH": "/elsewhere", "HOME": "/home", "OMP_NUM_THREADS": "1"}
    added = yarn.add_variables("spark.yarn.jars local:/jars/*\n", common).splitlines()
    assert added[:2] == ["spark.yarn.jars local:/jars/*", "spark.yarn.appMasterEnv.PEERS_MARKS /marks"]
    assert f"spark.executorEnv.PYTHONPATH {systems.JOBS / 'shared'}" in added and len(added) == 1 + 2 * 3


def test_the_accuracy_of_an_evaluation_has_four_digits() -> None:
    assert places.parse_accuracy(b'{"model": {"metrics": {"accuracy": 0.93141}}}') == 0.9314


def test_the_tables_have_a_row_for_each_system_that_ran() -> None:
    trials = {"run": [RUN, replace(RUN, seconds=75.0)], "worker": [KILLED], "orchestrator": [LEFT], "label": [FAILED]}
    stored = {"ray": Result(64, {"ray": "2.60.0"}, "python train.py", trials)}
    tables = page.render_tables(stored)
    assert "| Ray Data + Ray Train | 64 | 20 (20 to 20) | 8,189 (8,189 to 8,189) | 2 of 2 | 70 (65 to 75) |" in tables
    assert "| Ray Data + Ray Train | 1 of 1 | 4 | 469 | 65 | - | 9 |" in tables
    assert "| Ray Data + Ray Train | 3: java, python | 1,173 | yes | 9 |" in tables
    assert "| failed: `IndexError: Target 10 is out of bounds \\| 'x'` | 65 | 1500 | 9 |" in tables
    assert "| `python train.py` | [documentation](https://docs.ray.io/" in tables


def test_the_tables_of_yarn_have_the_next_command_and_what_is_left() -> None:
    trials = {"orchestrator": [FOLLOWED], "node-label": [replace(FAILED, left=("a",), steps=0, first_failure=20.4)]}
    tables = page.render_tables({"trainyard-yarn": Result(44, {}, "airflow dags test", trials)})
    assert tables.startswith("## On YARN\n\n### Speed on YARN")
    assert "| Trainyard | 1: mnist_yarn.train | finished | 81 | 2 | 1 | 1,255 | 9 |" in tables
    assert "| 20 | 65 | 0 | 1: a | 9 |" in tables


def test_tables_replace_those_of_the_page_and_nothing_else() -> None:
    text = page.replace_tables(f"# A\n\n{page.BEGIN}\n\nold\n{page.END}\n\nafter\n", "new\n")
    assert text == f"# A\n\n{page.BEGIN}\n\nnew\n\n{page.END}\n\nafter\n"
    assert page.replace_tables(text, "new\n") == text


def test_the_page_is_rendered_from_the_stored_results() -> None:
    text = page.FILE.read_text()
    assert page.replace_tables(text, page.render_tables(results.load())) == text


def find_median(name: str, scenario: str, field: str) -> float:
    found = (getattr(trial, field) for trial in results.load()[name].trials[scenario])
    return statistics.median(value for value in found if value is not None)


def describe_rate(rows_per_second: float) -> str:
    """Return a rate with two digits that count."""
    return f"{float(f'{rows_per_second:.2g}'):,.0f}"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("trainyard", "| Trainyard "), ("torchdistributor", "| SparkSubmitOperator "), ("ray", "| [Ray Train]"),
        ("lightning", "| Lightning "), ("horovod", "| [Horovod's Spark estimators]"),
    ],
)  # fmt: skip
def test_the_readme_has_the_figures_of_the_comparison(name: str, row: str) -> None:
    (line,) = (line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(row))
    rate = describe_rate(find_median(name, "run", "rows_per_second"))
    assert line.endswith(f"| {find_median(name, 'run', 'seconds'):.0f} | {rate} |")


def test_the_readme_has_the_rates_of_the_large_table() -> None:
    names = ("trainyard", "torchdistributor", "ray", "lightning", "horovod")
    rates = [describe_rate(find_median(name, "table", "rows_per_second")) for name in names]
    sentence = "are {} for Trainyard, {} for TorchDistributor, {} for Ray Train, {} for Lightning, {} for Horovod's"
    assert sentence.format(*rates) in " ".join((ROOT / "README.md").read_text().split())


def test_the_readme_has_the_figures_on_yarn() -> None:
    ours, peer = (
        {scenario: find_median(f"{name}-yarn", scenario, field) for scenario, field in FIGURES.items()}
        for name in ("trainyard", "torchdistributor")
    )
    text = " ".join((ROOT / "README.md").read_text().split())
    pipelines = (
        f"On YARN the small job takes {ours['run']:.0f} s with Trainyard and {peer['run']:.0f} s with TorchDistributor"
    )
    restarts = f"training resumes {ours['worker']:.0f} s and {peer['worker']:.0f} s after a worker is killed"
    assert f"{pipelines}, and {restarts}" in text
