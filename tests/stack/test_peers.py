"""The comparison with other systems: lines, marks, and the tables that are rendered from the results."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bench.peers import dataset, lines, marks, page, results, systems, trial
from bench.peers.marks import Marks, Step
from bench.peers.results import Result
from bench.peers.trial import Trial

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
FAILED = replace(RUN, status=1, error="IndexError: Target 10 is out of bounds | `x`", steps=1500)


def test_lines_with_code_are_counted_and_those_that_measure_are_not() -> None:
    assert lines.count(CODE) == 2 + 5


@pytest.mark.parametrize("system", systems.SYSTEMS, ids=lambda system: system.name)
def test_a_system_has_a_job_that_marks_its_steps(system: systems.System) -> None:
    text = "".join(file.read_text() for file in system.files)
    assert "measure." in text and sum(lines.count(file.read_text()) for file in system.files) > 20


def test_systems_are_chosen_by_name() -> None:
    assert systems.select([]) == list(systems.SYSTEMS)
    assert [system.title for system in systems.select(["ray"])] == ["Ray Data + Ray Train"]
    with pytest.raises(SystemExit, match="NAMES: there is no system 'rya'; use one of trainyard, torchdistributor, "):
        systems.select(["rya"])


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


def test_repeated_steps_are_those_beyond_the_epochs() -> None:
    assert RUN.repeated_steps == 0 and KILLED.repeated_steps == 469 and FAILED.repeated_steps == 0


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("a\n[info] IndexError: Target 10 is out of bounds.\nKeyError\nbye", "KeyError"),
        ("  ray.exceptions.RayTaskError(IndexError): index", "ray.exceptions.RayTaskError(IndexError): index"),
        ("\x1b[36m(worker)\x1b[0m IndexError: index\x1b[32m [twice]\x1b[0m", "IndexError: index [twice]"),
        ("Errors: none\n", ""),
    ],
)
def test_the_last_error_of_a_log_is_found(log: str, error: str) -> None:
    assert trial.find_error(log) == error


def test_processes_are_found_by_the_token_in_their_environment() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"PEERS_RUN": "token-1"})
    try:
        assert list(trial.find_processes("token-1")) == [process.pid]
        assert trial.find_processes("token") == {}
    finally:
        trial.end("token-1", process)
    assert trial.find_processes("token-1") == {} and process.returncode == -9


def test_a_source_has_the_same_rows_each_time_and_one_wrong_label_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TRAIN_ROWS": 60, "TEST_ROWS": 20, "ROWS_PER_FILE": 25}.items():
        monkeypatch.setattr(dataset, name, value)
    folders = [dataset.write(tmp_path / "a"), dataset.write(tmp_path / "b"), dataset.write(tmp_path / "c", True)]
    first, again, wrong = (pq.read_table(folder / "fold=train").combine_chunks() for folder in folders)
    assert first.equals(again) and first.num_rows == 60 and first["image"].equals(wrong["image"])
    changed = np.flatnonzero(np.asarray(first["label"]) != np.asarray(wrong["label"]))
    assert changed.tolist() == [30] and wrong["label"][30].as_py() == 10
    assert dataset.write(tmp_path / "a") == tmp_path / "a"


def test_results_are_read_as_they_were_stored() -> None:
    stored = {"ray": Result(64, {"ray": "2.60.0"}, "python train.py", {"run": [RUN], "orchestrator": [LEFT]})}
    assert results.parse(results.dump(stored)) == stored


def test_the_tables_have_a_row_for_each_system_that_ran() -> None:
    trials = {"run": [RUN, replace(RUN, seconds=75.0)], "worker": [KILLED], "orchestrator": [LEFT], "label": [FAILED]}
    stored = {"ray": Result(64, {"ray": "2.60.0"}, "python train.py", trials)}
    tables = page.render_tables(stored)
    assert "| Ray Data + Ray Train | 64 | 20 (20 to 20) | 8,189 (8,189 to 8,189) | 2 of 2 | 70 (65 to 75) |" in tables
    assert "| Ray Data + Ray Train | 1 of 1 | 4 | 469 | 65 | - | 9 |" in tables
    assert "| Ray Data + Ray Train | 3: java, python | 1,173 | yes | 9 |" in tables
    assert "| failed: `IndexError: Target 10 is out of bounds \\| 'x'` | 65 | 1500 | 9 |" in tables
    assert "| `python train.py` | [documentation](https://docs.ray.io/" in tables


def test_tables_replace_those_of_the_page_and_nothing_else() -> None:
    text = page.replace_tables(f"# A\n\n{page.BEGIN}\n\nold\n{page.END}\n\nafter\n", "new\n")
    assert text == f"# A\n\n{page.BEGIN}\n\nnew\n\n{page.END}\n\nafter\n"
    assert page.replace_tables(text, "new\n") == text


def test_the_page_is_rendered_from_the_stored_results() -> None:
    text = page.FILE.read_text()
    assert page.replace_tables(text, page.render_tables(results.load())) == text
