"""A command prints a table for people, or JSON or YAML for programs, and asks before it removes something."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from trainyard import __version__
from trainyard.cli import confirmation, output
from trainyard.cli.main import main, parser
from trainyard.errors import ArgumentError

ROWS: list[dict[str, Any]] = [
    {"name": "a", "rows": 1234, "metrics": {"loss": 0.123456, "accuracy": float("nan")}, "current": True, "why": None}
]


def parse(add: Any, *arguments: str) -> argparse.Namespace:
    command = argparse.ArgumentParser()
    add(command)
    return command.parse_args(arguments)


def test_a_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_rows(parse(output.add_output), ROWS, "nothing")
    assert capsys.readouterr().out.splitlines() == [
        "name  rows   metrics                    current  why",
        "a     1,234  loss 0.1235, accuracy nan  yes",
    ]


@pytest.mark.parametrize(("format", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_read_the_values(capsys: pytest.CaptureFixture[str], format: str, load: Any) -> None:
    """Also numbers that JSON does not have."""
    output.show_rows(parse(output.add_output, "-o", format), ROWS, "nothing")
    (row,) = load(capsys.readouterr().out)
    assert row == {
        "name": "a", "rows": 1234, "metrics": {"loss": 0.123456, "accuracy": "NaN"}, "current": True, "why": None,
    }  # fmt: skip


@pytest.mark.parametrize(("arguments", "printed"), [([], "nothing\n"), (["-o", "json"], "[]\n")])
def test_nothing_is_a_sentence_for_people_alone(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str], printed: str
) -> None:
    output.show_rows(parse(output.add_output, *arguments), [], "nothing")
    assert capsys.readouterr().out == printed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "confirmed"), [("y\n", True), ("Yes\n", True), ("\n", False), ("n\n", False), ("", False)]
)
def test_a_person_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, confirmed: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert confirmation.is_confirmed(parse(confirmation.add_confirmation), "Remove 3 runs") is confirmed
    printed = capsys.readouterr()
    assert printed.err == "Remove 3 runs? [y/N] "
    assert printed.out == ("" if confirmed else "Nothing was done.\n")


def test_yes_and_dry_run_are_answers(capsys: pytest.CaptureFixture[str]) -> None:
    add = confirmation.add_confirmation
    assert confirmation.is_confirmed(parse(add, "-y"), "Remove 3 runs")
    assert not confirmation.is_confirmed(parse(add, "--dry-run"), "Remove 3 runs")
    assert capsys.readouterr().out == "Dry run: nothing was done. Remove 3 runs with --yes.\n"
    with pytest.raises(SystemExit):
        parse(add, "--yes", "--dry-run")


def test_where_nobody_can_answer_an_option_must(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y"))
    with pytest.raises(ArgumentError, match=r"^Remove 3 runs\? Nothing was done, .*; add --yes or --dry-run\.$"):
        confirmation.is_confirmed(parse(confirmation.add_confirmation), "Remove 3 runs")


def list_commands(root: argparse.ArgumentParser) -> dict[str, set[str]]:
    """Return the options of each command by its name."""
    (actions,) = (action for action in root._actions if isinstance(action, argparse._SubParsersAction))
    commands: dict[str, set[str]] = {}
    for name, command in actions.choices.items():
        if any(isinstance(action, argparse._SubParsersAction) for action in command._actions):
            commands |= {f"{name} {inner}": options for inner, options in list_commands(command).items()}
        else:
            commands[name] = set(command._option_string_actions)
    return commands


def test_the_options_of_all_commands_have_the_same_names() -> None:
    commands = list_commands(parser())
    printing = {name for name, options in commands.items() if "-o" in options}
    removing = {name for name, options in commands.items() if "--yes" in options}
    assert printing == {
        "plan", "preflight", "doctor", "gc", "run list", "run show", "app list", "app reap", "dataset list",
        "dataset show", "dataset versions", "dataset diff", "model list", "model show", "model versions", "model diff",
    }  # fmt: skip
    assert removing == {"gc", "app kill", "app reap", "dataset drop", "dataset expire", "dataset clean"}
    assert all("--dry-run" in commands[name] for name in removing)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"trainyard {__version__}\n")
