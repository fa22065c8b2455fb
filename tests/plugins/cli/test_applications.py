"""`trainyard app list`, `logs` and `kill`, against a ResourceManager; tests/cluster has the logs of a real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.resource_managers import Answer, Server, application, applications, serve, write_yarn_site
from trainyard.cli import applications as commands
from trainyard.cli.main import main
from trainyard.yarn.resource_manager import LIVE, _application

ENTRIES = {
    entry["id"]: entry
    for entry in (
        application(1, "RUNNING", applicationTags="trainyard"),
        application(2, "FINISHED", applicationTags="trainyard"),
        application(3, "RUNNING", applicationTags="team-x"),
    )
}
RUNNING, FINISHED, FOREIGN = ENTRIES
STDOUT = """Container: container_1795290845344_0001_01_000001 on node1_8041
LogAggregationType: LOCAL
==============================
LogType:stdout
LogLastModifiedTime:Tue Nov 24 15:00:00 +0000 2026
LogLength:8
LogContents:
epoch 1

End of LogType:stdout
***********************
"""


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    def answer(method: str, path: str, query: dict[str, str]) -> Answer:
        if method == "PUT":
            return Answer({"state": "KILLED"}, 202)
        if path.endswith("/logs/stdout"):
            return Answer(STDOUT)
        if path.endswith("/apps"):
            tagged = [entry for entry in ENTRIES.values() if query["applicationTags"] in entry["applicationTags"]]
            return Answer(applications(*(entry for entry in tagged if entry["state"] in LIVE)))
        id = path.split("/")[-1]
        return Answer({"app": ENTRIES[id]}) if id in ENTRIES else Answer({"RemoteException": {"message": "no"}}, 404)

    with serve(answer) as started:
        write_yarn_site(tmp_path, monkeypatch, started)
        yield started


def killed(server: Server) -> list[str]:
    return [path.split("/")[-2] for method, path, _, _ in server.requests if method == "PUT"]


def test_list_has_the_live_applications_of_trainyard(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "list"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["application", "task", "state", "queue", "user", "age"]
    assert row.split()[:5] == [RUNNING, "toy.train", "RUNNING", "train", "root"]


def test_the_age_is_that_of_the_submission() -> None:
    assert commands.as_text([_application(ENTRIES[RUNNING])], 3601.0).endswith("1 h 0 min")


def test_kill_ends_one_application(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "kill", RUNNING, "--yes"]) == 0
    assert killed(server) == [RUNNING]
    assert capsys.readouterr().out == f"Ended {RUNNING}, toy.train.\n"


def test_one_that_has_ended_is_not_killed(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "kill", FINISHED, "--yes"]) == 0
    assert killed(server) == []
    assert capsys.readouterr().out == f"{FINISHED} has ended: FINISHED.\n"


@pytest.mark.parametrize("command", ["kill", "logs"])
@pytest.mark.parametrize(
    ("id", "message"),
    [
        (FOREIGN, "was not submitted by Trainyard; use `yarn application` for it"),
        ("application_9_0001", "the ResourceManager has no application 'application_9_0001'; `trainyard app list`"),
    ],
)
def test_other_applications_are_refused(
    server: Server, command: str, id: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["app", command, id]) == 1
    assert message in capsys.readouterr().err
    assert killed(server) == []


def test_the_logs_of_one_that_runs_are_read_from_its_node(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    container = "container_1795290845344_0001_01_000001"
    address = f"{server.url}/node/containerlogs/{container}/root"
    monkeypatch.setitem(ENTRIES, RUNNING, ENTRIES[RUNNING] | {"amContainerLogs": address})
    assert main(["app", "logs", RUNNING]) == 0
    assert capsys.readouterr().out == "--- stdout\nepoch 1\n\n--- stderr\n\n"
    assert server.requests[-2][1] == f"/ws/v1/node/containers/{container}/logs/stdout"


def test_an_application_whose_driver_waits_has_no_logs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENTRIES, RUNNING, application(1, "ACCEPTED", applicationTags="trainyard"))
    assert main(["app", "logs", RUNNING]) == 1
    assert capsys.readouterr().err == f"{RUNNING} is ACCEPTED; its driver has not started.\n"
