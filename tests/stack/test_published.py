"""The published scripts: the table, the checks of their output, the data and repositories, and the page of results."""

from __future__ import annotations

import ast
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stack.published import __main__ as published
from stack.published import checks, data, page, repositories, results, trial
from stack.published.checks import Check, Finding
from stack.published.repositories import Repository
from stack.published.results import Result
from stack.published.scripts import DATA, SCRIPTS, Script, select_scripts
from trainyard.schemas.specs.script import ScriptSpec

LOSS = Check(r"loss ([\d.]+|nan)", lines=2, max_last=2, has_fallen=True)
TOY = Script("toy", Repository("someone/toy", "a" * 40), "train.py", LOSS)
NEEDY = replace(TOY, check=Check("needs two GPUs"), trains=False, note="needs two GPUs")
TRAINED = Result("a" * 40, "2026-11-29", "trains", 40, "loss 1.5", versions={"torch": "2.15.0"})


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_has_a_pinned_commit_data_that_can_be_written_and_a_check_of_one_figure(script: Script) -> None:
    assert re.fullmatch("[0-9a-f]{40}", script.repository.commit)
    assert script.data in {"", *data.WRITERS}
    used = (*script.arguments, *script.variables.values(), script.cwd)
    assert script.data or not any(DATA in text for text in used)
    has_limits = replace(script.check, pattern="", lines=0) != Check("")
    assert re.compile(script.check.pattern).groups == has_limits


def test_a_script_that_trains_shows_a_figure_and_another_one_has_its_reason_on_the_page() -> None:
    assert all(re.compile(script.check.pattern).groups if script.trains else script.note for script in SCRIPTS)


def test_scripts_are_chosen_by_name() -> None:
    assert select_scripts([]) == list(SCRIPTS) and len({script.name for script in SCRIPTS}) == len(SCRIPTS)
    assert [script.name for script in select_scripts(["run_clm", "mnist"])] == ["run_clm", "mnist"]
    with pytest.raises(SystemExit, match=r"NAMES: there is no script 'bert'; use one of mnist, imagenet, "):
        select_scripts(["bert"])


def test_a_script_lies_below_the_dag_or_its_repository_has_the_dag() -> None:
    assert (TOY.module, TOY.folder, TOY.clone) == ("someone-toy.train", "", "someone-toy")
    nested = replace(TOY, path="examples/a/train.py")
    assert (nested.module, nested.folder) == ("someone-toy.examples.a.train", "examples/a")
    beside = replace(nested, is_beside_dag=True)
    assert (beside.module, beside.folder, beside.clone) == ("examples.a.train", "", "")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_dag_of_a_script_has_valid_options(script: Script) -> None:
    call = next(
        node
        for node in ast.walk(ast.parse(trial.build_dag(script, "/d", "/p")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ScriptOperator"
    )
    options = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
    assert options.pop("env_vars")["PYTHONPATH"] == "/p"
    assert DATA not in str(options)
    del options["task_id"]
    ScriptSpec.model_validate(options | {"task_key": {"dag_id": "d", "run_id": "r", "task_id": "t", "directory": "/d"}})


def test_the_output_of_a_training_passes_and_its_last_line_is_the_evidence() -> None:
    task = "[airflow.task.operators.x.ScriptOperator] loc=progress_bar.py:91"
    output = (
        f"[info] [rank0]: \x1b[1mloss 2.5\x1b[0m {task}\nloss 9\n[info] [rank1]: of 2: loss 1.5  after 2 s {task}\n"
    )
    assert checks.examine(LOSS, output) == Finding("loss 1.5 after 2 s")


def print_by_worker(output: str) -> str:
    """Return the output of a script as the log of its task has it."""
    return "".join(f"2026-11-29 [info     ] [rank1]: {line}\n" for line in output.splitlines())


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("", r"0 lines match loss ([\d.]+|nan), not 2"),
        ("loss 1.5", r"1 lines match loss ([\d.]+|nan), not 2"),
        ("loss 1.5\nloss 1.5", "1.5 is not less than 1.5, the first number"),
        ("loss 9\nloss 2\nloss 1", r"3 lines match loss ([\d.]+|nan), not 2"),
        ("loss 9\nloss 2.5", "2.5 is not from -inf to 2"),
        ("loss 9\nloss nan", "nan is not from -inf to 2"),
    ],
)
def test_the_output_of_a_training_that_went_wrong_does_not_pass(output: str, problem: str) -> None:
    assert checks.examine(LOSS, print_by_worker(output)).problem == problem


@pytest.mark.parametrize(
    ("script", "exit_status", "output", "status", "reason"),
    [
        (TOY, 0, "loss 2\nloss 1", "trains", ""),
        (TOY, 0, "loss 2\nloss 3", "failed", "3 is not from -inf to 2"),
        (TOY, 1, "loss 2\nloss 1", "failed", "rank 0 of 2 on a failed: OSError: no room"),
        (NEEDY, 0, "it needs two GPUs", "stops", ""),
        (NEEDY, 1, "it needs two GPUs", "stops", ""),
        (NEEDY, 0, "it trains", "failed", "0 lines match needs two GPUs, not one or more"),
    ],
)
def test_exit_status_and_output_decide_the_result(
    script: Script, exit_status: int, output: str, status: str, reason: str
) -> None:
    error = "airflow.exceptions.AirflowException: rank 0 of 2 on a failed: OSError: no room\n" if exit_status else ""
    log = print_by_worker(output) + error
    result = results.build_result(script, "2026-11-29", exit_status, 40.4, log, {})
    assert (result.status, result.reason, result.seconds) == (status, reason, 40)


def test_a_repository_is_unpacked_at_its_commit_not_at_its_newest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "mirror" / "someone" / "toy"
    (clone / "a").mkdir(parents=True)
    git = ["git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    for text in ("old", "new"):
        for file in ("a/train.py", "other.py"):
            (clone / file).write_text(text)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", text], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD~1"], check=True, capture_output=True, text=True).stdout.strip()
    monkeypatch.setenv(repositories.MIRROR, str(tmp_path / "mirror"))
    repositories.unpack(Repository("someone/toy", commit), "a", tmp_path / "out")
    files = {path.name: path.read_text() for path in (tmp_path / "out").rglob("*.py")}
    assert files == {"train.py": "old"}
    with pytest.raises(repositories.MissingRepositoryError, match=r"fatal: .*a{40}"):
        repositories.unpack(Repository("someone/toy", "a" * 40), "", tmp_path / "out")
    with pytest.raises(repositories.MissingRepositoryError, match="there is no someone/other"):
        repositories.unpack(Repository("someone/other", commit), "", tmp_path / "out")


def test_the_digits_of_the_test_set_have_the_format_of_mnist_and_are_no_digits_of_the_training_set(
    tmp_path: Path,
) -> None:
    data.write_mnist(tmp_path, train=500, test=100)
    sets = []
    for name, rows in (("train", 500), ("t10k", 100)):
        raw = (tmp_path / "MNIST" / "raw" / f"{name}-images-idx3-ubyte").read_bytes()
        assert np.frombuffer(raw, ">i4", 4).tolist() == [0x803, rows, 28, 28]
        images = np.frombuffer(raw, np.uint8, offset=16).reshape(rows, -1)
        labels = np.frombuffer(
            (tmp_path / "MNIST" / "raw" / f"{name}-labels-idx1-ubyte").read_bytes(), np.uint8, offset=8
        )
        assert len(set(labels.tolist())) == 10 and len(labels) == rows
        sets.append({np.sort(image).tobytes() for image in images})  # moving a digit keeps its pixels
    assert not sets[0] & sets[1]


def test_results_are_read_as_they_were_written() -> None:
    other = Result(
        "b" * 40, "2026-11-29", "not run", reason="no network", arguments=("--epochs", "2"), variables={"A": "1"}
    )
    recorded = {"toy": TRAINED, "other": other}
    assert results.load(results.dump(recorded)) == recorded


@pytest.mark.parametrize(("recorded", "kept"), [({"toy": TRAINED}, "trains"), ({}, "not run")], ids=["recorded", "new"])
def test_a_script_that_cannot_be_fetched_keeps_its_result_and_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: dict[str, Result], kept: str
) -> None:
    for name, value in (("SCRIPTS", (TOY,)), ("RESULTS", tmp_path / "results.json"), ("PAGE", tmp_path / "page.md")):
        monkeypatch.setattr(published, name, value)
    monkeypatch.setattr(published, "select_scripts", lambda _: [TOY])
    monkeypatch.setattr(trial, "FOLDER", tmp_path / "runs")
    monkeypatch.setenv(repositories.MIRROR, str(tmp_path))
    published.RESULTS.write_text(results.dump(recorded))
    assert published.main([]) == 1
    assert results.load(published.RESULTS.read_text())["toy"].status == kept


@pytest.mark.parametrize(
    "changed",
    [
        {"repository": Repository("someone/toy", "b" * 40)},
        {"arguments": ("--epochs", "99")},
        {"variables": {"A": "1"}},
    ],
    ids=["commit", "arguments", "variables"],
)
def test_a_script_that_is_run_otherwise_than_recorded_was_not_run_yet(changed: dict[str, Any]) -> None:
    text = page.render([replace(TOY, **changed)], {"toy": TRAINED})
    assert "| not run yet | - | - |" in text and "loss 1.5" not in text


def test_versions_of_packages_that_differ_name_their_scripts() -> None:
    other = replace(TRAINED, date="2026-12-01", versions={"torch": "2.16.0"})
    scripts = [TOY, replace(TOY, name="other"), replace(TOY, name="third")]
    text = page.render(scripts, {"toy": TRAINED, "other": other, "third": TRAINED, "removed": other})
    assert "\n- toy, third: torch 2.15.0\n- other: torch 2.16.0\n" in text


def test_the_page_shows_what_trains_what_was_added_and_why_others_do_not() -> None:
    added = replace(TOY, arguments=("--data", DATA), variables={"A": "1"}, cwd=f"{DATA}/run")
    run = {"arguments": added.arguments, "variables": added.variables}
    text = page.render(
        [added, replace(NEEDY, name="needy"), replace(TOY, name="new"), replace(TOY, name="bad")],
        {
            "toy": replace(TRAINED, **run),
            "needy": replace(TRAINED, status="stops", evidence="it needs | two"),
            "bad": replace(TRAINED, status="failed", reason="1 is not less than 1"),
        },
    )
    link = f"[train.py](https://github.com/someone/toy/blob/{'a' * 40}/train.py)"
    assert f"| toy: {link} | `--data DATA` | `env_vars`: `A=1`; `cwd=DATA/run` | `loss 1.5` | 40 | 2026-11-29 |" in text
    assert f"| needy: {link} | needs two GPUs | `it needs \\| two` | 2026-11-29 |" in text
    assert f"| new: {link} | none | nothing | not run yet | - | - |" in text
    assert f"| bad: {link} | none | nothing | **failed**: `1 is not less than 1` | 40 | 2026-11-29 |" in text
    assert "\ntorch 2.15.0.\n" in text


def test_the_page_has_the_recorded_results() -> None:
    assert published.PAGE.read_text() == page.render(SCRIPTS, results.load(published.RESULTS.read_text()))
