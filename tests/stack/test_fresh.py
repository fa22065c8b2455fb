"""A failure of a fresh installation names the packages that differ from the lock."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stack.local import fresh
from tests.plugins.cli.test_runs import save


def test_packages_that_differ_from_the_lock_are_named() -> None:
    locked = "# via\nnumpy==2.4.6\n    # via torch\npyspark==4.2.0 ; python_full_version < '4'\ntorch==2.15.0\n"
    installed = {"torch": "2.16.0", "numpy": "2.4.6", "pyspark": "4.2.0", "extra": "1"}
    assert fresh.list_differences(installed, locked) == [
        "extra 1 (locked: not at all)",
        "torch 2.16.0 (locked: 2.15.0)",
    ]


def test_the_packages_of_an_environment_are_compared_with_the_lock() -> None:
    text = fresh.describe_packages(Path(sys.prefix))
    assert " packages, of which " in text and "\npytest " in text and "\ntorch " not in text


def test_a_command_that_fails_is_shown_with_its_output(tmp_path: Path) -> None:
    with pytest.raises(fresh.FailedCommandError, match=r"^status 3 of .*\nout\n\nerr\n$"):
        fresh.run(["bash", "-c", "echo out; echo err >&2; exit 3"], tmp_path)


@pytest.mark.parametrize(
    ("evaluate", "problem"),
    [
        ({"metrics": {"accuracy": 0.5}}, r"the accuracy of the quick start is 0\.5; expected more than 0\.9"),
        ({"error": "no"}, r"the stages of the quick start are .*'evaluate': 'failed'"),
    ],
)
def test_a_quick_start_whose_model_is_bad_is_a_failure(
    tmp_path: Path, evaluate: dict[str, object], problem: str
) -> None:
    for number, (task, output) in enumerate({"export": {}, "train": {}, "evaluate": evaluate}.items()):
        save(tmp_path / "storage", "r1", task, float(number), dag="flowers", **output)
    with pytest.raises(fresh.FailedCommandError, match=problem):
        fresh.check_accuracy(tmp_path)
