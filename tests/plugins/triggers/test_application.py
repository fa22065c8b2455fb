"""The trigger that waits for an application."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.name_nodes import serve_silence
from tests.plugins.resource_managers import STANDBY, Answer, Server, application, applications, serve, write_yarn_site
from trainyard.errors import TrainyardError
from trainyard.schemas.runs.worker_progress import GroupProgress, TrainingProgress, progress_uri
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.triggers import progress
from trainyard.triggers.application import ApplicationTrigger, describe_state, get_pause
from trainyard.yarn.resource_manager import LIVE, Application


@pytest.mark.parametrize(
    ("state", "diagnostics", "description"),
    [
        ("RUNNING", "", "application_1 is RUNNING"),
        (
            "ACCEPTED",
            "[Sat Nov 21 19:00:00 +0000 2026] Application is Activated, waiting for resources to be assigned for AM.  "
            "Details : AM Partition = gpu ; AM Resource Request = <memory:2048, vCores:1>\n",
            "application_1 is ACCEPTED: Application is Activated, waiting for resources to be assigned for AM.",
        ),
        (
            "ACCEPTED",
            "[Mon Nov 23 23:26:15 +0000 2026] Application is Activated, waiting for resources to be assigned for AM.  "
            "Last Node which was processed for the application : localhost:21326 ( Partition : [], Total resource : "
            "<memory:6144, vCores:4>, Available resource : <memory:5632, vCores:2> ).",
            "application_1 is ACCEPTED: Application is Activated, waiting for resources to be assigned for AM.",
        ),
    ],
)
def test_the_state_has_no_figures_and_times_that_change(state: str, diagnostics: str, description: str) -> None:
    assert describe_state(Application("application_1", state, "UNDEFINED", "etl", diagnostics, "", 0.0)) == description


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Server], None]:
    """Write the address of a ResourceManager into the configuration of YARN."""
    return lambda server: write_yarn_site(tmp_path, monkeypatch, server)


@pytest.fixture
def cluster(configure: Callable[[Server], None]) -> Iterator[Callable[..., Server]]:
    """A function that starts a ResourceManager with one state of its applications for each poll; the last one stays."""
    with ExitStack() as stack:

        def start(*states: Any) -> Server:
            server = stack.enter_context(serve(list_by_turns(list(states))))
            configure(server)
            return server

        yield start


def list_by_turns(turns: list[Any]) -> Callable[[str, str, dict[str, str]], Answer]:
    """Answer as a ResourceManager whose applications 1, 2, ... have the states of a turn; a poll begins a turn.

    One whose state is None does not exist. A turn can be an `Answer` instead, to everything that a poll asks.
    """
    current: Any = ()

    def answer(method: str, path: str, query: dict[str, str]) -> Answer:
        nonlocal current
        if method == "PUT":
            return Answer({"state": "KILLED"}, 202)
        if path.endswith("/apps"):
            current = turns.pop(0) if len(turns) > 1 else turns[0]
        if isinstance(current, Answer):
            return current
        entries = {
            f"application_1795290845344_{number:04d}": application(number, state, applicationTags=f"{TAG},trainyard")
            for number, state in enumerate(current, start=1)
            if state
        }
        if path.endswith("/apps"):
            return Answer(applications(*(entry for entry in entries.values() if entry["state"] in LIVE)))
        id = path.split("/")[-1]
        return Answer({"app": entries[id]}) if id in entries else Answer({"RemoteException": {"message": "none"}}, 404)

    return answer


ID = "application_1795290845344_0001"
TAG = "trainyard-train-1"


def first(trigger: ApplicationTrigger) -> dict[str, Any]:
    """Return the payload of the first event."""

    async def event() -> dict[str, Any]:
        return dict((await anext(aiter(trigger.run()))).payload)

    return asyncio.run(event())


def list_polls(server: Server) -> list[str]:
    return [path for method, path, _, _ in server.requests if path.endswith("/apps")]


def list_kills(server: Server) -> list[str]:
    return [path.split("/")[-2] for method, path, _, _ in server.requests if method == "PUT"]


def test_a_resource_manager_that_refuses_is_polled_until_the_patience_ends(cluster: Callable[..., Server]) -> None:
    server = cluster(Answer({"RemoteException": {"message": "who are you?"}}, 403))
    event = first(ApplicationTrigger(ID, TAG, poll=0.01, patience=2))
    assert len(server.requests) > 1
    assert event["application"] == ID
    assert event["error"].endswith("who are you?")


@pytest.mark.parametrize(
    ("waited", "poll", "pause"), [(0, 5.0, 1.0), (10, 5.0, 1.0), (60, 5.0, 3.0), (900, 5.0, 5.0), (0, 0.5, 0.5)]
)
def test_a_short_application_is_polled_more_often(waited: float, poll: float, pause: float) -> None:
    assert get_pause(waited, poll) == pause


def test_the_first_poll_for_a_reattached_application_is_delayed(cluster: Callable[..., Server]) -> None:
    cluster(["FINISHED"])
    start = time.monotonic()
    first(ApplicationTrigger(ID, TAG, reattached=True, poll=0.2, patience=0.1))
    assert time.monotonic() - start >= 3 * 0.2


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "KILLED"])
@pytest.mark.parametrize("reattached", [False, True])
def test_the_event_of_an_application_that_ended_has_its_id(
    cluster: Callable[..., Server], state: str, reattached: bool
) -> None:
    server = cluster(["ACCEPTED"], ["RUNNING"], [state])
    assert first(ApplicationTrigger(ID, TAG, reattached, poll=0.01)) == {"application": ID, "reattached": reattached}
    assert len(list_polls(server)) == 3


def test_a_resource_manager_that_recovers_is_polled_until_the_application_has_ended(
    cluster: Callable[..., Server],
) -> None:
    cluster(["RUNNING"], Answer(STANDBY), [], ["RUNNING"], Answer("[", 200), ["FINISHED"])
    assert first(ApplicationTrigger(ID, TAG, poll=0.01)) == {"application": ID, "reattached": False}


def test_a_configuration_that_is_missing_for_a_while_ends_no_trigger(
    cluster: Callable[..., Server], tmp_path: Path
) -> None:
    """A trigger that raised would leave its application to nobody."""
    cluster(["FINISHED"])
    site, away = tmp_path / "yarn-site.xml", tmp_path / "away"
    site.rename(away)

    async def restore_and_wait() -> dict[str, Any]:
        event = asyncio.create_task(anext(aiter(ApplicationTrigger(ID, TAG, poll=0.01).run())))
        await asyncio.sleep(0.1)
        assert not event.done()
        away.rename(site)
        return dict((await asyncio.wait_for(event, 60)).payload)

    assert asyncio.run(restore_and_wait()) == {"application": ID, "reattached": False}


def test_each_answer_of_a_live_application_renews_the_patience(cluster: Callable[..., Server]) -> None:
    server = cluster(*[["RUNNING"]] * 30, ["FINISHED"])
    assert "error" not in first(ApplicationTrigger(ID, TAG, poll=0.05, patience=1.0))
    assert len(list_polls(server)) == 31


def test_an_application_that_is_missing_is_reported_after_the_patience(cluster: Callable[..., Server]) -> None:
    cluster([])
    event = first(ApplicationTrigger(ID, TAG, poll=0.01, patience=0.1))
    assert event == {"application": ID, "error": "it has no such application"}


@pytest.mark.parametrize("own", ["FINISHED", "KILLED", None])
def test_an_application_that_has_ended_kills_none_of_the_next_attempt(
    cluster: Callable[..., Server], own: str | None
) -> None:
    """A trigger may poll once more after its attempt: the younger application is that of the next one."""
    server = cluster([own, "RUNNING"])
    first(ApplicationTrigger(ID, TAG, poll=0.01, patience=0.05))
    assert list_kills(server) == []


def test_an_older_application_is_not_killed(cluster: Callable[..., Server]) -> None:
    younger = ID.replace("0001", "0002")
    server = cluster(["RUNNING", "RUNNING"], ["RUNNING", "FINISHED"])
    first(ApplicationTrigger(younger, TAG, poll=0.01))
    assert list_kills(server) == []


def test_live_duplicates_are_killed_and_others_are_not(cluster: Callable[..., Server]) -> None:
    server = cluster(["RUNNING", "KILLED", "ACCEPTED"], ["FINISHED", "KILLED", "KILLED"])
    first(ApplicationTrigger(ID, TAG, poll=0.01))
    assert list_kills(server) == ["application_1795290845344_0003"]


def test_a_duplicate_that_cannot_be_killed_does_not_hide_the_end(
    cluster: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(id: str) -> None:
        raise TrainyardError("it belongs to another user")

    cluster(["RUNNING", "RUNNING"], ["FINISHED", "RUNNING"])
    monkeypatch.setattr("trainyard.yarn.cluster.kill", refuse)
    assert first(ApplicationTrigger(ID, TAG, poll=0.01)) == {"application": ID, "reattached": False}


def test_a_kill_goes_on_when_airflow_stops_to_wait_for_it(
    cluster: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a failover: Airflow waits for half a minute."""
    is_active = threading.Event()

    def wait_and_kill(id: str) -> None:
        assert is_active.wait(60)
        done.append(id)

    async def kill() -> None:
        triggers = [ApplicationTrigger(ID, TAG) for _ in range(20)]
        kills = (asyncio.wait_for(trigger.on_kill(), 0.1) for trigger in triggers)
        assert all(isinstance(end, TimeoutError) for end in await asyncio.gather(*kills, return_exceptions=True))

    count = 20
    done: list[str] = []
    monkeypatch.setattr("trainyard.yarn.cluster.kill", wait_and_kill)
    asyncio.run(kill())
    is_active.set()
    deadline = time.monotonic() + 60
    while len(done) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(done) == count


def test_a_task_that_is_cleared_kills_its_own_application_alone(cluster: Callable[..., Server]) -> None:
    """The next attempt may have submitted another one already."""
    server = cluster(["RUNNING", "ACCEPTED"])
    asyncio.run(ApplicationTrigger(ID, TAG).on_kill())
    assert list_kills(server) == [ID]


def test_an_application_can_be_left_to_the_next_attempt(cluster: Callable[..., Server]) -> None:
    server = cluster(["RUNNING"])
    asyncio.run(ApplicationTrigger(ID, TAG, cancel_on_kill=False).on_kill())
    assert list_kills(server) == []


def test_a_trigger_is_recreated_from_its_fields() -> None:
    path, fields = ApplicationTrigger(ID, "tag", True, "file:///s/progress", True, False, 2.0, 3.0).serialize()
    assert path == "trainyard.triggers.application.ApplicationTrigger"
    assert fields == {
        "application": ID, "tag": "tag", "reattached": True, "progress": "file:///s/progress", "get_logs": True,
        "cancel_on_kill": False, "poll": 2.0, "patience": 3.0,
    }  # fmt: skip
    assert ApplicationTrigger(**fields).serialize() == (path, fields)


def test_an_application_that_waits_is_logged_with_its_place_in_the_queue(
    configure: Callable[[Server], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """One request for all that wait, not one for each."""
    turns = iter([["ACCEPTED"] * 3, ["FINISHED"] * 3])
    entries: list[dict[str, Any]] = []

    def answer(method: str, path: str, query: dict[str, str]) -> Answer:
        nonlocal entries
        if "applicationTags" in query:
            entries = [
                application(number, state, applicationTags=f"{TAG}-{number},trainyard", startedTime=number)
                for number, state in enumerate(next(turns), start=1)
            ]
        if path.endswith("/apps"):
            return Answer(applications(*(entry for entry in entries if entry["state"] in LIVE)))
        return Answer({"app": next(entry for entry in entries if entry["id"] == path.split("/")[-1])})

    with serve(answer) as server:
        configure(server)
        assert first(ApplicationTrigger(ID.replace("0001", "0002"), f"{TAG}-2", poll=0.05))["application"]
    assert f"{ID.replace('0001', '0002')} is ACCEPTED, number 2 of 3 that wait in queue" in capsys.readouterr().out


def test_the_progress_of_a_training_is_logged_while_it_runs(
    cluster: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = TaskKey(dag_id="d", run_id="r", task_id="train", directory=str(tmp_path))
    training = TrainingProgress(epoch=1, epochs=2, step=3, steps=9, loss=0.5, rows_per_second=10.0, seconds_left=4.0)
    GroupProgress(task_key=key, at=time.time(), workers=(), training=training).save()
    cluster(["RUNNING"], ["RUNNING"], ["FINISHED"])
    first(ApplicationTrigger(ID, TAG, progress=progress_uri(key), poll=0.01))
    assert capsys.readouterr().out.count("epoch 1/2 step 3/9: loss 0.5, 10 rows/s, 4 s left") == 1


def test_a_storage_that_does_not_answer_is_no_end_of_a_running_application(
    cluster: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trigger waited for the progress until its patience ended, and the last attempt killed a live training."""
    monkeypatch.setattr(progress, "MAX_WAIT_SECONDS", 0.01)
    cluster(*[["RUNNING"]] * 20, ["FINISHED"])
    with serve_silence(monkeypatch) as (uri, _):
        trigger = ApplicationTrigger(ID, TAG, progress=f"{uri}/train.json", poll=0.01, patience=0.2)
        assert first(trigger) == {"application": ID, "reattached": False}


def test_the_reason_why_there_is_no_answer_is_logged_when_it_changes(
    cluster: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    refused = Answer({"RemoteException": {"message": "who are you?"}}, 403)
    cluster(refused, refused, [], [], ["RUNNING"], refused, ["FINISHED"])
    first(ApplicationTrigger(ID, TAG, poll=0.01))
    output = capsys.readouterr().out
    assert output.count(f"There is no answer for {ID}: ") == 3
    assert output.count("who are you?") == 2 and output.count("it has no such application") == 1


def test_a_driver_log_that_cannot_be_read_is_told_once(
    cluster: Callable[..., Server], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> tuple[int, bytes]:
        raise TrainyardError("the node does not answer")

    cluster(["RUNNING"], ["RUNNING"], ["FINISHED"])
    monkeypatch.setattr("trainyard.yarn.logs.read_running_log", refuse)
    first(ApplicationTrigger(ID, TAG, get_logs=True, poll=0.01))
    assert capsys.readouterr().out.count("The driver's log is not available: the node does not answer") == 1
