"""The answers of a ResourceManager, and the difference between no answer and a refusal."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.plugins.resource_managers import STANDBY, Answer, application, applications, serve
from trainyard.errors import TrainyardError
from trainyard.yarn import resource_manager
from trainyard.yarn.resource_manager import LIVE, ResourceManager, UnreachableError


def test_resource_managers_that_do_not_answer_are_named() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        urls = tuple(f"http://127.0.0.1:{closed.getsockname()[1]}/{name}" for name in ("rm1", "rm2"))
        with pytest.raises(UnreachableError, match=r"rm1: ConnectionError; .*rm2: ConnectionError"):
            ResourceManager(urls).tagged("t")


APPLICATION = """{"app": {
    "id": "application_1_1", "state": "FINISHED", "queue": "train", "startedTime": 1000, "launchTime": 2000,
    "finishedTime": 12000, "resourceSecondsMap": MAP
}}"""
AS_HADOOP_WRITES_IT = """{
    "entry": {"key": "memory-mb", "value": "10240"}, "entry": {"key": "vcores", "value": "20"},
    "entry": {"key": "yarn.io/gpu", "value": "10"}
}"""
AS_A_LIST = """{"entry": [
    {"key": "memory-mb", "value": "10240"}, {"key": "vcores", "value": "20"}, {"key": "yarn.io/gpu", "value": "10"}
]}"""


@pytest.fixture
def manager() -> Iterator[Callable[[str], ResourceManager]]:
    """A server of one answer to everything."""
    answer = b""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

        def answering(text: str) -> ResourceManager:
            nonlocal answer
            answer = text.encode()
            return ResourceManager((f"http://127.0.0.1:{server.server_address[1]}",))

        yield answering
        server.shutdown()


@pytest.mark.parametrize("resource_map", [AS_HADOOP_WRITES_IT, AS_A_LIST])
def test_resource_seconds_are_read_in_every_form_that_hadoop_writes(
    manager: Callable[[str], ResourceManager], resource_map: str
) -> None:
    application = manager(APPLICATION.replace("MAP", resource_map)).application("application_1_1")
    assert application and (application.started, application.launched, application.finished) == (1.0, 2.0, 12.0)
    assert application.resource_seconds == {"memory-mb": 10240.0, "vcores": 20.0, "yarn.io/gpu": 10.0}


def test_a_list_may_take_longer_than_an_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of thousands of nodes and applications do."""
    monkeypatch.setattr(resource_manager, "READ_SECONDS", 0.1)

    def answer_late(method: str, path: str, query: dict[str, str]) -> Answer:
        time.sleep(0.4)
        return Answer(applications())

    with serve(answer_late) as server:
        assert ResourceManager((server.url,)).in_state("RUNNING") == []
        with pytest.raises(UnreachableError, match="ReadTimeout"):
            ResourceManager((server.url,)).application("application_1_1")


def test_an_application_without_resource_seconds_has_none(manager: Callable[[str], ResourceManager]) -> None:
    application = manager(APPLICATION.replace("MAP", "null")).application("application_1_1")
    assert application and application.resource_seconds == {}


def test_a_standby_is_skipped_and_the_active_resource_manager_answers() -> None:
    with serve(lambda *_: Answer(STANDBY)) as standby, serve(lambda *_: Answer(applications())) as active:
        assert ResourceManager((standby.url, active.url)).tagged("t") == []
        assert (len(standby.requests), len(active.requests)) == (1, 1)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Answer(STANDBY), 200),
        (Answer("gateway", 502), 502),
        (Answer({"apps": None}, 503), 503),
        (Answer({"message": "no Route matched with those values"}, 404), 404),
    ],
)
def test_without_an_active_resource_manager_none_answers(answer: Answer, status: int) -> None:
    with serve(lambda *_: answer) as server, pytest.raises(UnreachableError) as error:
        ResourceManager((server.url,)).tagged("t")
    assert str(error.value) == f"no active ResourceManager answers: {server.url}: HTTP {status}."


def test_a_refusal_has_the_message_of_yarn() -> None:
    refusal = {"RemoteException": {"exception": "ForbiddenException", "message": "User bob is not allowed"}}
    with serve(lambda *_: Answer(refusal, 403)) as server, pytest.raises(TrainyardError) as error:
        ResourceManager((server.url,)).tagged("t")
    assert not isinstance(error.value, UnreachableError)
    assert str(error.value).endswith("refuses GET apps: User bob is not allowed")


@pytest.mark.parametrize(("status", "reason"), [(401, "Unauthorized"), (403, "Forbidden")])
def test_a_refusal_in_html_is_reported_at_once(status: int, reason: str) -> None:
    """As of the filter for SPNEGO in front of a ResourceManager, or of a gateway."""
    with serve(lambda *_: Answer("<html>who are you?</html>", status)) as server:
        with pytest.raises(TrainyardError) as error:
            ResourceManager((server.url, server.url)).kill("application_1_1")
        assert not isinstance(error.value, UnreachableError)
        assert str(error.value).endswith(f"refuses PUT apps/application_1_1/state: HTTP {status} {reason}")
        assert len(server.requests) == 1


def test_applications_are_listed_from_the_oldest_to_the_newest() -> None:
    """Hadoop lists the newest first; two submitted in one millisecond are in the order of their numbers."""
    listed = [application(12), application(3, "KILLED"), application(7), application(6, startedTime=7000)]
    listed += [application(10000, startedTime=20000), application(9999, startedTime=20000)]
    with serve(lambda *_: Answer(applications(*listed))) as server:
        found = ResourceManager((server.url,), user="ada").tagged("trainyard-tag")
        assert [int(one.id.rpartition("_")[2]) for one in found] == [3, 6, 7, 12, 9999, 10000]
        assert [one.live for one in found] == [False, *[True] * 5]
        query = {"applicationTags": "trainyard-tag", "user.name": "ada"}
        assert server.requests == [("GET", "/ws/v1/cluster/apps", query, None)]


def test_the_fields_of_an_application_are_read() -> None:
    answer = Answer({"app": application(4, "FAILED", diagnostics="exited with exitCode: -104")})
    with serve(lambda *_: answer) as server:
        found = ResourceManager((server.url,)).application("application_1795290845344_0004")
    assert found and (found.state, found.final_status, found.queue) == ("FAILED", "FAILED", "train")
    assert (found.started, found.launched, found.finished) == (4.0, 4.5, 13.0)
    assert (found.user, found.log_status, found.diagnostics) == ("root", "SUCCEEDED", "exited with exitCode: -104")
    assert found.driver_logs.endswith("/container_1795290845344_0004_01_000001/root")
    assert found.tracking_url == "http://rm1:8088/proxy/application_1795290845344_0004/"
    assert found.resource_seconds == {"memory-mb": 30720.0}


def test_an_unknown_application_is_none() -> None:
    missing = {"RemoteException": {"exception": "NotFoundException", "message": "app with id: x not found"}}
    with serve(lambda *_: Answer(missing, 404)) as server:
        assert ResourceManager((server.url,)).application("application_1_1") is None


def test_a_kill_of_an_unknown_application_does_nothing() -> None:
    with serve(lambda *_: Answer({"RemoteException": {"message": "app with id: x not found"}}, 404)) as server:
        ResourceManager((server.url,)).kill("application_1_1")
        assert len(server.requests) == 1


def test_the_resource_manager_that_answered_last_is_asked_first() -> None:
    with serve(lambda *_: Answer(STANDBY)) as standby, serve(lambda *_: Answer(applications())) as active:
        for _ in range(3):
            ResourceManager((standby.url, active.url)).tagged("t")
        assert (len(standby.requests), len(active.requests)) == (1, 3)


def test_after_a_failover_the_other_one_is_asked_first() -> None:
    roles = {"rm1": Answer(applications()), "rm2": Answer(STANDBY)}
    with serve(lambda *_: roles["rm1"]) as rm1, serve(lambda *_: roles["rm2"]) as rm2:
        manager = ResourceManager((rm1.url, rm2.url))
        manager.tagged("t")
        roles["rm1"], roles["rm2"] = roles["rm2"], roles["rm1"]
        for _ in range(3):
            manager.tagged("t")
        assert (len(rm1.requests), len(rm2.requests)) == (2, 3)


def test_a_kill_is_repeated_until_a_resource_manager_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_manager, "KILL_INTERVAL_SECONDS", 0.01)
    answers = [Answer(STANDBY), Answer(STANDBY), Answer("gateway", 502), Answer({"state": "KILLED"}, 202)]
    with serve(lambda *_: answers.pop(0)) as server:
        ResourceManager((server.url,)).kill("application_1_1")
        assert [request[0] for request in server.requests] == ["PUT"] * 4


def test_a_kill_ends_with_an_error_when_none_becomes_active(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_manager, "KILL_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(resource_manager, "KILL_SECONDS", 0.1)
    with serve(lambda *_: Answer(STANDBY)) as server, pytest.raises(UnreachableError):
        ResourceManager((server.url,)).kill("application_1_1")


def test_a_kill_that_is_refused_is_not_repeated() -> None:
    refusal = Answer({"RemoteException": {"message": "bob may not"}}, 403)
    with serve(lambda *_: refusal) as server:
        with pytest.raises(TrainyardError, match="bob may not"):
            ResourceManager((server.url,)).kill("application_1_1")
        assert len(server.requests) == 1


@pytest.mark.parametrize("text", ["", "[", "<html>"])
def test_an_answer_that_is_not_json_is_no_answer(manager: Callable[[str], ResourceManager], text: str) -> None:
    with pytest.raises(UnreachableError, match="not JSON"):
        manager(text).tagged("t")


def test_an_answer_that_ends_too_early_is_no_answer() -> None:
    """As when a ResourceManager is killed while it writes."""

    def answer_half(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer_half, args=(listener,), daemon=True).start()
        with pytest.raises(UnreachableError, match="ChunkedEncodingError"):
            ResourceManager((f"http://127.0.0.1:{listener.getsockname()[1]}",)).tagged("t")


def test_applications_in_some_states_are_asked_for() -> None:
    with serve(lambda *_: Answer(applications(application(1)))) as server:
        (found,) = ResourceManager((server.url,)).tagged("t", LIVE)
        assert server.requests[0][2] == {"applicationTags": "t", "states": ",".join(LIVE)}
    assert found.tags == {"trainyard-tag"}


def test_a_kill_by_tag_is_repeated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_manager, "KILL_INTERVAL_SECONDS", 0.01)
    answers = [Answer(STANDBY), Answer(applications(application(1))), Answer(STANDBY), Answer({"state": "KILLED"}, 202)]
    with serve(lambda *_: answers.pop(0)) as server:
        ResourceManager((server.url,)).kill_tagged("trainyard-tag")
        assert [request[0] for request in server.requests] == ["GET", "GET", "PUT", "PUT"]


@pytest.mark.parametrize(
    "id", ["../../../ws/v1/cluster", "application_1_1?user.name=x", "application_1", "local-1", ""]
)
def test_what_is_no_id_of_an_application_is_not_sent(id: str) -> None:
    """It would be another path of the ResourceManager."""
    with serve(lambda *_: Answer({})) as server:
        for call in (ResourceManager((server.url,)).kill, ResourceManager((server.url,)).application):
            with pytest.raises(TrainyardError, match="is not the id of an application of YARN"):
                call(id)
        assert server.requests == []


def test_an_application_is_killed_if_it_is_the_task_that_was_named() -> None:
    theirs = {"app": {"id": "application_1_1", "state": "RUNNING", "name": "other.train"}}
    with serve(lambda *_: Answer(theirs)) as server:
        manager = ResourceManager((server.url,))
        with pytest.raises(TrainyardError, match=r"application_1_1 is 'other.train', and not 'toy.train'; it was not"):
            manager.kill_named("application_1_1", "toy.train")
        assert [request[0] for request in server.requests] == ["GET"]
        manager.kill_named("application_1_1", "other.train")
        assert [request[0] for request in server.requests] == ["GET", "GET", "PUT"]
