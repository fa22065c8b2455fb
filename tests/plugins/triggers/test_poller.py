"""One request for all applications that the triggers of a process wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.resource_managers import Answer, Server, application, applications, serve, write_yarn_site
from trainyard.errors import TrainyardError
from trainyard.triggers import poller
from trainyard.triggers.poller import get_poller
from trainyard.yarn.resource_manager import LIVE, Application

WAITING = 100


def tag(number: int) -> str:
    return f"trainyard-train-{number}"


def id_of(number: int) -> str:
    return f"application_1795290845344_{number:04d}"


@pytest.fixture
def entries() -> dict[str, dict[str, Any]]:
    """The entries of many applications that run, each of a task of its own."""
    return {id_of(n): application(n, applicationTags=f"{tag(n)},trainyard") for n in range(1, WAITING + 1)}


@pytest.fixture
def server(entries: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A ResourceManager with these applications."""

    def answer(_: str, path: str, query: dict[str, str]) -> Answer:
        if path.endswith("/apps"):
            return Answer(applications(*(entry for entry in entries.values() if entry["state"] in LIVE)))
        id = path.split("/")[-1]
        return Answer({"app": entries[id]}) if id in entries else Answer({"RemoteException": {"message": "none"}}, 404)

    with serve(answer) as server:
        write_yarn_site(tmp_path, monkeypatch, server)
        yield server


async def find(number: int, max_age: float = 60.0) -> tuple[Application | None, list[Application]]:
    return await get_poller().find(id_of(number), tag(number), max_age)


def test_applications_that_run_take_one_request_together(server: Server) -> None:
    async def find_all() -> list[tuple[Application | None, list[Application]]]:
        return await asyncio.gather(*map(find, range(1, WAITING + 1)))

    found = asyncio.run(find_all())
    assert [application.id for application, _ in found if application] == [id_of(n) for n in range(1, WAITING + 1)]
    query = {"applicationTags": "trainyard", "states": ",".join(LIVE), "user.name": server.requests[0][2]["user.name"]}
    assert server.requests == [("GET", "/ws/v1/cluster/apps", query, None)]


def test_an_application_that_is_not_listed_is_asked_for_by_its_id(
    server: Server, entries: dict[str, dict[str, Any]]
) -> None:
    entries[id_of(7)]["state"] = "FINISHED"
    found, _ = asyncio.run(find(7))
    assert found and found.state == "FINISHED"
    assert [path.split("/")[-1] for _, path, _, _ in server.requests] == ["apps", id_of(7)]


def test_an_application_of_an_earlier_release_has_no_common_tag_and_is_found(
    server: Server, entries: dict[str, dict[str, Any]]
) -> None:
    entries[id_of(7)]["applicationTags"] = tag(7)
    found, _ = asyncio.run(find(7))
    assert found and found.live


def test_an_application_that_does_not_exist_is_none(server: Server) -> None:
    assert asyncio.run(find(WAITING + 1)) == (None, [])


def test_live_applications_with_the_same_tag_are_duplicates(server: Server, entries: dict[str, dict[str, Any]]) -> None:
    entries[id_of(8)]["applicationTags"] = f"{tag(7)},trainyard"
    found, others = asyncio.run(find(7))
    assert found and [other.id for other in others] == [id_of(8)]


def test_a_listing_is_used_until_it_is_too_old(server: Server) -> None:
    async def find_twice(max_age: float) -> int:
        before = len(server.requests)
        await find(1, max_age)
        await find(1, max_age)
        return len(server.requests) - before

    assert asyncio.run(find_twice(60.0)) == 1
    assert asyncio.run(find_twice(-1.0)) == 2


def test_a_long_listing_is_requested_less_often(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller, "LISTED_PER_SECOND", WAITING / 60)

    async def find_often() -> None:
        for _ in range(10):
            await find(1, max_age=-1.0)

    asyncio.run(find_often())
    assert len(server.requests) == 1


def test_a_long_list_of_what_waits_in_the_queues_of_all_users_is_requested_less_often(
    server: Server, entries: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller, "LISTED_PER_SECOND", WAITING / 60)
    for entry in entries.values():
        entry["state"] = "ACCEPTED"

    async def find_position_often() -> list[Any]:
        application, _ = await find(7)
        assert application
        return [await get_poller().find_position(application, max_age=-1.0) for _ in range(10)]

    assert asyncio.run(find_position_often()) == [(7, WAITING)] * 10
    assert len(server.requests) == 2


def test_all_that_wait_share_the_error_of_a_request(server: Server, tmp_path: Path) -> None:
    """A ResourceManager that is down costs a timeout, not one for each application."""
    (tmp_path / "yarn-site.xml").unlink()

    async def find_all() -> list[Any]:
        return await asyncio.gather(*map(find, range(1, WAITING + 1)), return_exceptions=True)

    errors = asyncio.run(find_all())
    assert isinstance(errors[0], TrainyardError) and "HADOOP_CONF_DIR" in str(errors[0])
    assert all(error is errors[0] for error in errors)
