"""Applications whose task is gone are found and ended; all others stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.resource_managers import Answer, Server, application, applications, serve
from trainyard.files import storage
from trainyard.jobs import orphans
from trainyard.planning.paths import application_tag, storage_tag, submission_tag
from trainyard.schemas.runs.owner import Owner
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.yarn.resource_manager import LIVE, ResourceManager

AIRFLOW = "trainyard_airflow_1"
OTHER = "trainyard_airflow_2"
IDS = frozenset([AIRFLOW, "trainyard_airflow_0"])
"""Those of this Airflow: two tasks were the first at the same moment."""
TASK = {"dag_id": "toy", "run_id": "r1"}


@pytest.fixture
def entries() -> list[dict[str, Any]]:
    """The applications of the ResourceManager; a test adds its own."""
    return []


@pytest.fixture
def server(entries: list[dict[str, Any]]) -> Iterator[Server]:
    def answer(method: str, path: str, query: dict[str, str]) -> Answer:
        if method == "PUT":
            return Answer({"state": "KILLED"}, 202)
        tag, states = query["applicationTags"], query["states"].split(",")
        return Answer(
            applications(*(e for e in entries if tag in e["applicationTags"].split(",") and e["state"] in states))
        )

    with serve(answer) as server:
        yield server


@pytest.fixture
def root(tmp_path: Path) -> str:
    return f"file://{tmp_path}"


def submit(root: str, number: int, task_id: str, airflow: str | None = AIRFLOW) -> dict[str, Any]:
    """Return the entry of an application as it was submitted; without a record of its owner if `airflow` is None."""
    key = TaskKey(task_id=task_id, directory=f"{root}/runs/toy/r1", **TASK)
    submission = submission_tag(str(number))
    if airflow is not None:
        Owner(task_key=key, airflow=airflow).save(root, submission)
    tags = ("trainyard", application_tag(key), storage_tag(root), submission, "team-x")
    return application(number, applicationTags=",".join(tags))


def judge(server: Server, root: str, **states: str | None) -> dict[str, str]:
    """Return the verdict by the end of the application's id."""
    manager = ResourceManager((server.url,))
    live = orphans.list_live(manager, root, IDS, lambda key: states[key.task_id])
    return {one.application.id[-2:]: one.verdict for one in live}


@pytest.mark.parametrize("state", ["success", "failed", "skipped", "upstream_failed", "removed", None])
def test_an_application_whose_task_has_ended_or_does_not_exist_is_orphaned(
    server: Server, entries: list[dict[str, Any]], root: str, state: str | None
) -> None:
    entries.append(submit(root, 1, "train"))
    assert judge(server, root, train=state) == {"01": "orphaned"}


@pytest.mark.parametrize(
    "state", ["", "scheduled", "queued", "running", "deferred", "restarting", "up_for_retry", "up_for_reschedule"]
)
def test_an_application_whose_task_waits_for_it_or_will_find_it_is_not(
    server: Server, entries: list[dict[str, Any]], root: str, state: str
) -> None:
    entries.append(submit(root, 1, "train"))
    assert judge(server, root, train=state) == {"01": "in use"}


def test_what_others_submitted_is_never_orphaned(server: Server, entries: list[dict[str, Any]], root: str) -> None:
    entries += [submit(root, 1, "a", airflow=OTHER), submit(root, 2, "b", airflow=None)]
    entries += [submit(f"{root}/other", 3, "c"), application(4, applicationTags="nightly")]
    entries += [submit(root, 5, "d", airflow=""), application(6, applicationTags=f"trainyard,{storage_tag(root)}")]
    assert judge(server, root) == {
        "01": "other Airflow", "02": "unknown owner", "05": "unknown owner", "06": "unknown owner"
    }  # fmt: skip


@pytest.mark.parametrize("task_id", ["storage", "storage-clean", "submission", "submission-1"])
def test_an_application_is_judged_whatever_its_task_is_named(
    server: Server, entries: list[dict[str, Any]], root: str, task_id: str
) -> None:
    entries.append(submit(root, 1, task_id))
    assert judge(server, root, **{task_id: None}) == {"01": "orphaned"}


def test_applications_that_have_ended_are_not_listed(server: Server, entries: list[dict[str, Any]], root: str) -> None:
    entries.append(submit(root, 1, "train") | {"state": "FINISHED"})
    assert judge(server, root) == {}
    assert server.requests[0][2]["states"] == ",".join(LIVE)


def test_only_orphans_are_killed(server: Server, entries: list[dict[str, Any]], root: str) -> None:
    entries += [submit(root, 1, "gone"), submit(root, 2, "runs"), submit(root, 3, "other", airflow=OTHER)]
    manager = ResourceManager((server.url,))
    states = {"gone": None, "runs": "deferred"}
    live = orphans.list_live(manager, root, IDS, lambda key: states[key.task_id])
    killed, refused = orphans.kill_orphans(manager, live, print)
    assert ([id[-2:] for id in killed], refused) == (["01"], [])
    assert [path.split("/")[-2][-2:] for method, path, _, _ in server.requests if method == "PUT"] == ["01"]


def test_two_submissions_of_a_task_are_judged_each_by_its_own_record(
    server: Server, entries: list[dict[str, Any]], root: str
) -> None:
    entries += [submit(root, 1, "train"), submit(root, 2, "train", airflow=OTHER)]
    assert judge(server, root, train=None) == {"01": "orphaned", "02": "other Airflow"}


def test_an_application_that_yarn_refuses_to_kill_does_not_keep_the_others(
    entries: list[dict[str, Any]], root: str
) -> None:
    def answer(method: str, path: str, query: dict[str, str]) -> Answer:
        if method == "PUT":
            refuses = "0001" in path
            return Answer({"RemoteException": {"message": "no"}}, 403) if refuses else Answer({"state": "KILLED"}, 202)
        return Answer(applications(*entries))

    entries += [submit(root, 1, "first"), submit(root, 2, "second")]
    lines: list[str] = []
    with serve(answer) as server:
        manager = ResourceManager((server.url,))
        live = orphans.list_live(manager, root, IDS, lambda key: "failed")
        killed, refused = orphans.kill_orphans(manager, live, lines.append)
    assert ([id[-2:] for id in killed], [id[-2:] for id in refused]) == (["02"], ["01"])
    assert len(lines) == 1 and "0001 cannot be killed" in lines[0]


def test_an_owner_that_another_release_wrote_is_unknown(
    server: Server, entries: list[dict[str, Any]], root: str
) -> None:
    entries.append(submit(root, 1, "train"))
    (name,) = storage.list_names(f"{root}/owners")
    storage.replace(f"{root}/owners/{name}", b'{"document": "owner", "version": 99}')
    assert judge(server, root) == {"01": "unknown owner"}


def test_the_table_names_task_state_and_verdict(server: Server, entries: list[dict[str, Any]], root: str) -> None:
    entries += [submit(root, 1, "gone"), submit(root, 2, "runs")]
    states = {"gone": None, "runs": "deferred"}
    live = orphans.list_live(ResourceManager((server.url,)), root, IDS, lambda key: states[key.task_id])
    lines = orphans.as_text(live, root).splitlines()
    assert lines[1].split("  ")[-1].strip() == "orphaned" and "no such task" in lines[1]
    assert all(text in lines[2] for text in ("toy", "r1", "runs", "deferred", "in use"))
    assert len(lines) == 3


def test_below_the_table_is_why_applications_are_never_ended(
    server: Server, entries: list[dict[str, Any]], root: str
) -> None:
    entries += [submit(root, 1, "a", airflow=OTHER), submit(root, 2, "b", airflow=None), submit(root, 3, "c", "")]
    live = orphans.list_live(ResourceManager((server.url,)), root, IDS, lambda key: "running")
    _, other, unknown = orphans.as_text(live, root).split("\n\n")
    assert other.startswith("1 of another Airflow: its Variable") and "Run `trainyard app reap` there." in other
    assert unknown.startswith(f"2 of an unknown owner: {root}/owners has no record") and "-kill ID" in unknown


def test_owners_of_tasks_that_have_ended_are_removed_when_their_applications_have(
    server: Server, entries: list[dict[str, Any]], root: str
) -> None:
    """A task that submits now has an owner before it has an application."""
    for number, task_id in enumerate(["ended", "deleted", "submits"], start=1):
        submit(root, number, task_id)
    submit(root, 4, "elsewhere", airflow=OTHER)
    entries.append(submit(root, 5, "runs-on"))
    states = {"ended": "failed", "deleted": None, "submits": "running", "runs-on": "failed"}
    live = orphans.list_live(ResourceManager((server.url,)), root, IDS, lambda key: states[key.task_id])
    stale = orphans.list_stale_owners(root, live, IDS, lambda key: states[key.task_id])
    assert sorted(stale) == sorted(submission_tag(number) for number in ("1", "2"))
