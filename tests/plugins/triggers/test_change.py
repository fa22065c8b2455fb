"""Triggers that report each change once."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.evaluations import write_model
from tests.plugins.resource_managers import Answer, application, serve, write_yarn_site
from trainyard.files import storage
from trainyard.triggers import ApplicationEndTrigger, ChampionTrigger, DatasetTrigger
from trainyard.triggers.change import ChangeTrigger

ID = "application_1795290845344_0001"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The storage root of the default connection."""
    connection = {"conn_type": "trainyard", "extra": {"storage": tmp_path.as_uri()}}
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps(connection))
    return tmp_path


def write_version(root: Path, number: int) -> None:
    storage.create(f"{root}/toy/versions/{number:08d}.json", b"{}")


def collect(trigger: ChangeTrigger, steps: Iterator[object]) -> list[Any]:
    """Return the payload of one event for each step that has been taken before it."""

    async def events() -> list[Any]:
        found = []
        running = trigger.run()
        for _ in steps:
            found.append((await asyncio.wait_for(anext(running), 60)).payload)
        return found

    return asyncio.run(events())


def test_each_newest_version_of_a_dataset_is_reported_once(root: Path) -> None:
    steps = iter([(1,), (2, 3)])
    found = collect(DatasetTrigger("toy", poll=0.01), ([write_version(root, n) for n in step] for step in steps))
    assert found == [{"uri": f"{root.as_uri()}/toy", "version": version} for version in (1, 3)]


def test_versions_that_are_known_are_not_reported(root: Path) -> None:
    write_version(root, 1)
    assert DatasetTrigger("toy", since=1).look() is None
    assert DatasetTrigger("toy", since=0).look() == {"uri": f"{root.as_uri()}/toy", "version": 1}


def test_a_dataset_that_was_removed_and_exported_again_is_reported(root: Path) -> None:
    """Its versions begin at 1 again."""
    trigger = DatasetTrigger("toy", since=3)
    assert trigger.look() is None
    for number in (1, 2, 3):
        write_version(root, number)
    assert trigger.look() == {"uri": f"{root.as_uri()}/toy", "version": 3}


def test_the_first_versions_of_a_dataset_that_was_exported_again_are_reported(root: Path) -> None:
    write_version(root, 1)
    assert DatasetTrigger("toy", since=3).look() == {"uri": f"{root.as_uri()}/toy", "version": 1}


def test_a_dataset_that_does_not_exist_has_no_versions(root: Path) -> None:
    assert DatasetTrigger("toy").look() is None


def test_each_new_champion_is_reported_once(root: Path) -> None:
    written: list[str] = []
    weights = iter([b"one", b"one", b"two"])

    def promote() -> None:
        while len(set(written)) == (before := len(set(written))) and (content := next(weights, b"")):
            written.append(write_model(root / "toy/champion", content).weights_sha256)
            if len(set(written)) > before:
                return

    found = collect(ChampionTrigger("toy/champion", poll=0.01), (promote() for _ in range(2)))
    assert [event["weights_sha256"] for event in found] == list(dict.fromkeys(written))


def test_an_event_of_a_champion_is_json_although_a_metric_is_not_finite(root: Path) -> None:
    write_model(root / "toy/champion", b"one", metrics={"accuracy": 0.5, "pearson": math.nan})
    event = ChampionTrigger("toy/champion").look()
    assert event and event["metrics"] == {"accuracy": 0.5, "pearson": None}


def test_without_a_champion_there_is_nothing_to_report() -> None:
    assert ChampionTrigger("toy/champion").look() is None


def test_a_storage_that_is_away_for_a_while_is_asked_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger, answers = DatasetTrigger("toy", poll=0.01), iter([OSError("away"), {"uri": "toy", "version": 1}])

    def look() -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(trigger, "look", look)
    assert collect(trigger, iter([None])) == [{"uri": "toy", "version": 1}]


def test_the_end_of_an_application_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = iter(["RUNNING", "RUNNING"])
    with serve(lambda *_: Answer({"app": application(1, next(states, "FINISHED"))})) as server:
        write_yarn_site(root, monkeypatch, server)
        found = collect(ApplicationEndTrigger(ID, poll=0.01), iter([None]))
    assert [(event["application"], event["final_status"]) for event in found] == [(ID, "SUCCEEDED")]


@pytest.mark.parametrize(
    "trigger",
    [
        DatasetTrigger("toy", 3, "other", 5.0),
        ChampionTrigger("toy/champion", "abc", "other", 5.0),
        ApplicationEndTrigger(ID, 5.0),
    ],
)
def test_a_trigger_is_recreated_from_its_fields(trigger: ChangeTrigger) -> None:
    path, fields = trigger.serialize()
    assert path == f"{type(trigger).__module__}.{type(trigger).__name__}"
    assert type(trigger)(**fields).serialize() == (path, fields)
