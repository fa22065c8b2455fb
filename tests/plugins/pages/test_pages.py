"""The pages of a real Airflow: who sees what, and that names stay names."""

from __future__ import annotations

import json
import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tests.plugins.pages.conftest import NOON, Airflow
from trainyard import storage
from trainyard.planning.paths import run_directory
from trainyard.schemas.events import EventLog
from trainyard.schemas.failure import Failure
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec
from trainyard.schemas.worker_progress import GroupProgress, WorkerProgress
from trainyard.usage import resource_usage
from trainyard.usage.resource_usage import ResourceUsage

pytestmark = pytest.mark.airflow

RUN = {"conn_id": "trainyard_default", "dag_id": "ann.digits", "run_id": "r1"}
BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"
NASTY = ["a/b", 'say "hi"', "<script>alert(1)</script>", "../../etc", "..", "100% & more?#", "übung 1"]


class Links(HTMLParser):
    """Where the links of a page lead."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attributes if tag == "a" and name == "href"]


def follow(airflow: Airflow, page: str, beginning: str) -> Any:
    """The page that the first link of that beginning leads to."""
    [link, *_] = [link for link in Links(page).found if link.startswith(beginning)]
    path, _, query = link.partition("?")
    return airflow.get(path, **dict(parse_qsl(query)))


def test_a_user_sees_the_pipelines_that_the_user_may_read(airflow: Airflow) -> None:
    for dag_id in ("ann.digits", "bob.digits"):
        airflow.dag(dag_id)
        airflow.run(dag_id, "r1")
    shown = airflow.get(user="ann").text
    assert "ann.digits" in shown and "bob.digits" not in shown


def test_who_may_read_a_dag_but_not_its_runs_sees_none_of_them(airflow: Airflow) -> None:
    airflow.dag("ann.secret")
    airflow.run("ann.secret", "r1")
    held(task_key(airflow, "ann.secret"))
    assert "ann.secret" not in airflow.get().text + airflow.get("ledger").text
    assert airflow.get("pipeline", **RUN | {"dag_id": "ann.secret"}).status_code == 403


@pytest.mark.parametrize("page", ["pipeline", "run", "report"])
def test_the_runs_of_others_are_refused(airflow: Airflow, page: str) -> None:
    airflow.dag("ann.digits")
    storage.replace(storage.join(airflow.run("ann.digits", "r1"), "report.html"), b"the report")
    assert airflow.get(page, user="ann", **RUN).status_code == 200
    assert airflow.get(page, user="bob", **RUN).status_code == 403


@pytest.mark.parametrize("page", ["", "pipeline", "run", "report", "ledger"])
def test_who_has_not_logged_in_sees_nothing(airflow: Airflow, page: str) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    answer = airflow.get(page, user=None, **RUN)
    assert answer.status_code == 401 and "digits" not in answer.text


@pytest.mark.parametrize("page", ["", "run"])
def test_whose_browser_has_not_logged_in_is_led_to_airflows_login_and_from_there_to_the_page(
    airflow: Airflow, page: str
) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    login = airflow.get(page, user=None, accept=BROWSER, **RUN)
    assert (login.status_code, login.url.path) == (200, "/auth/login") and "digits" not in login.text
    path, _, query = login.url.params["next"].partition("?")
    assert path == f"/trainyard/{page}"
    assert airflow.get(page, accept=BROWSER, **dict(parse_qsl(query))).text == airflow.get(page, **RUN).text


def test_the_login_is_asked_for_where_airflow_is(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.org/air/flow/")
    led = airflow.get("ledger", user=None, accept=BROWSER).history[0].headers["Location"]
    assert led.startswith("/air/flow/api/v2/auth/login?next=%2Fair%2Fflow%2Ftrainyard%2Fledger")


def test_who_has_logged_in_and_may_not_is_refused_without_another_login(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    assert airflow.get("run", user="bob", accept=BROWSER, **RUN).status_code == 403


@pytest.mark.parametrize("name", NASTY)
def test_a_name_of_any_characters_is_shown_as_it_is_and_leads_to_its_run(airflow: Airflow, name: str) -> None:
    dag_id = f"ann{name}"
    airflow.dag(dag_id)
    airflow.run(dag_id, name)
    shown = airflow.get()
    assert escape(dag_id).replace("&quot;", "&#34;") in shown.text and "<script>alert" not in shown.text
    listed = follow(airflow, shown.text, "pipeline?")
    assert listed.status_code == 200
    run = follow(airflow, listed.text, "run?")
    assert run.status_code == 200 and "export" in run.text and "local-1" in run.text
    assert "<script>alert" not in listed.text + run.text


@pytest.mark.parametrize("run_id", ["../../other", "..", ".", "/etc"])
def test_no_name_leads_out_of_the_runs_of_the_dag(airflow: Airflow, run_id: str) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    storage.replace(storage.join(airflow.root, "other", "report.html"), b"of somebody else")
    answer = airflow.get("report", **RUN | {"run_id": run_id})
    assert answer.status_code == 404 and "somebody" not in answer.text


def test_only_connections_of_trainyard_say_where_runs_lie(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    other = {"conn_type": "http", "extra": {"storage": airflow.root}}
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps(other))
    for conn_id in ("other", "<script>alert(1)</script>", "../x"):
        answer = airflow.get("run", **RUN | {"conn_id": conn_id})
        assert answer.status_code == 404 and "<script>alert" not in answer.text


def test_runs_of_a_second_connection_are_listed_with_its_name(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.dag("ann.digits")
    other = Airflow(airflow.app, storage.join(airflow.root, "elsewhere"))
    other.run("ann.digits", "r1")
    monkeypatch.setenv(
        "AIRFLOW_CONN_ELSEWHERE", json.dumps({"conn_type": "trainyard", "extra": {"storage": other.root}})
    )
    assert "conn_id=elsewhere" in airflow.get().text


def test_runs_of_a_connection_that_a_backend_of_secrets_holds_are_listed_when_it_is_named(
    airflow: Airflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.dag("ann.digits")
    other = Airflow(airflow.app, storage.join(airflow.root, "elsewhere"))
    other.run("ann.digits", "r1")
    vault = tmp_path / "vault.json"
    vault.write_text(json.dumps({"kept": {"conn_type": "trainyard", "extra": {"storage": other.root}}}))
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", "airflow.secrets.local_filesystem.LocalFilesystemBackend")
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND_KWARGS", json.dumps({"connections_file_path": str(vault)}))
    assert "conn_id=kept" not in airflow.get().text
    monkeypatch.setenv("AIRFLOW__TRAINYARD__CONNECTIONS", "kept, mistaken")
    assert "conn_id=kept" in airflow.get().text


def test_runs_are_listed_newest_first_a_page_at_a_time(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    for number in range(30):
        airflow.run("ann.digits", f"run-{number:02}", number)
    first = airflow.get("pipeline", **RUN).text
    assert first.index("run-29") < first.index("run-05") and "run-04" not in first
    assert "Page 1 of 2" in first and "30 runs" in first
    second = airflow.get("pipeline", **RUN, page=2).text
    assert second.index("run-04") < second.index("run-00") and "run-05" not in second
    assert airflow.get("pipeline", **RUN, page=99).text == second, "the nearest that there is"


def test_of_a_long_list_only_the_page_that_is_shown_is_read(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    airflow.dag("ann.digits")
    for number in range(60):
        airflow.run("ann.digits", f"run-{number:02}", number)
    seen: list[str] = []
    read = storage.read
    monkeypatch.setattr(storage, "read", lambda uri: seen.append(uri) or read(uri))
    airflow.get("pipeline", **RUN)
    assert len({uri for uri in seen if "/runs/" in uri}) == 25
    seen.clear()
    airflow.get()
    assert len({uri for uri in seen if "/runs/" in uri}) == 1, "of the newest run"


def test_a_run_that_airflow_has_forgotten_is_listed_last_by_its_directory(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "new")
    airflow.run("ann.digits", "old:1", known=False)
    listed = airflow.get("pipeline", **RUN).text
    assert listed.index(">new<") < listed.index(">old_1-")
    assert "local-1" in airflow.get("run", **RUN | {"run_id": "old:1"}).text


def test_a_record_that_cannot_be_read_is_told_and_hides_no_other_run(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "good")
    broken = airflow.run("ann.digits", "bad", 1)
    storage.replace(storage.join(broken, "records", "export.json"), b"{")
    listed = airflow.get("pipeline", **RUN).text
    assert "is not JSON" in listed and "export 7.0 s" in listed


def task_key(airflow: Airflow, dag_id: str = "ann.digits", run_id: str = "r1", task: str = "train") -> TaskKey:
    directory = run_directory(airflow.root, dag_id, run_id)
    return TaskKey(dag_id=dag_id, run_id=run_id, task_id=task, directory=directory)


def held(where: TaskKey, gpu_hours: float = 0.0, page: str = "") -> None:
    """An application that held two cores for an hour, and worked for half of it."""
    one = ResourceUsage(
        task_key=where, application="application_1_1", queue="train", began=NOON.timestamp(), seconds=3600.0,
        working=1800.0, core_seconds=7200.0, gpu_seconds=3600 * gpu_hours, page=page,
    )  # fmt: skip
    resource_usage.save(one, print)


def cells(page: str) -> list[list[str]]:
    """The rows of all tables of a page."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def test_the_ledger_is_of_the_runs_that_the_user_may_read_and_the_worst_comes_first(airflow: Airflow) -> None:
    for dag_id, gpu_hours in (("ann.small", 1.0), ("ann.large", 8.0), ("bob.digits", 80.0)):
        airflow.dag(dag_id)
        airflow.run(dag_id, "r1")
        held(task_key(airflow, dag_id), gpu_hours)
    shown = airflow.get("ledger").text
    assert "bob" not in shown
    assert ["Sum", "4", "2", "9", "4.5", "4", "9"] in cells(shown)
    assert shown.index("ann.large") < shown.index("ann.small")
    assert ["2026-W47", "4", "2", "9", "4.5", "4", "9"] in cells(shown)


@pytest.mark.parametrize(
    ("page", "links"), [("http://rm:8088/cluster/app/application_1_1", True), ("javascript:alert(1)", False)]
)
def test_a_run_leads_to_the_pages_of_its_applications_on_the_web_alone(
    airflow: Airflow, page: str, links: bool
) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    held(task_key(airflow), page=page)
    shown = airflow.get("run", **RUN).text
    assert "2 core-hours, 1 of them busy" in shown
    assert (page in Links(shown).found) is links


def test_a_gang_that_runs_is_shown_with_its_ranks_and_epochs_until_it_ends(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1", state="running")
    here = task_key(airflow)
    spec = TrainSpec.model_validate(
        {"task_key": here, "recipe": "toy.recipe:network", "dataset": "b", "model": "m", "options": {"epochs": 9}}
    )
    storage.replace(storage.join(here.directory, "specs", "train.json"), spec.to_json().encode())
    assert "train has begun and not ended" in airflow.get("run", **RUN).text
    GroupProgress(
        task_key=here,
        at=NOON.timestamp(),
        ranks=(WorkerProgress(rank=1, host="<b>n1", phase="forward", epoch=3, step=17),),
    ).save()
    log = EventLog(here.directory, "train", "rank 0")
    log.counter("epoch", epoch=1, loss=0.5, rows_per_second=10.0)
    log.counter("epoch", epoch=2, loss=0.25, rows_per_second=10.0)
    log.flush()
    shown = airflow.get("run", **RUN).text
    assert ["1", "&lt;b&gt;n1", "3", "17", "forward"] in cells(shown)
    assert "As heard at <time>2026-11-20 12:00:00</time> UTC; 9 epochs were asked for" in shown
    assert "loss, between 0.25 and 0.5" in shown and "data-live" in shown
    RunRecord(
        task_key=here,
        job="train",
        application="a2",
        started_at=1.0,
        seconds=1.0,
        status="failed",
        error="no",
        output={},
    ).save()
    assert "begun" not in airflow.get("run", **RUN).text


def test_nothing_is_under_way_in_a_run_that_is_over(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    directory = airflow.run("ann.digits", "r1", state="failed")
    storage.replace(storage.join(directory, "specs", "train.json"), b"{}")
    shown = airflow.get("run", **RUN).text
    assert "begun" not in shown and "data-live" not in shown


def test_metrics_are_drawn_from_run_to_run_with_words_for_those_who_do_not_see_them(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    for number, accuracy in enumerate((0.5, 0.75)):
        airflow.run("ann.digits", f"r{number}", number, job="evaluate", output={"metrics": {"accuracy": accuracy}})
    shown = airflow.get("pipeline", **RUN).text
    assert 'aria-label="export: accuracy, between 0.5 and 0.75; last accuracy 0.75"' in shown
    assert ["r1", "0.75"] in cells(shown) and ["r0", "0.5"] in cells(shown)


def test_a_try_that_left_no_record_is_told_with_the_reason(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    directory = airflow.run("ann.digits", "r1", state="failed")
    task_key = TaskKey(dag_id="ann.digits", run_id="r1", task_id="train", directory=directory, try_number=2)
    Failure(task_key=task_key, at=NOON.timestamp() + 60, error="YARN killed <b>the driver</b>.\nand more").save()
    page = airflow.get("run", **RUN).text
    assert "YARN killed &lt;b&gt;the driver&lt;/b&gt;." in page and "and more" not in page
    Failure(task_key=task_key.model_copy(update={"task_id": "export", "try_number": 1}), at=0, error="no tea").save()
    assert "no tea" not in airflow.get("run", **RUN).text


def test_why_a_stage_failed_is_told_in_its_first_line(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1", status="failed", error="there is no <b>tea\nat line 7", output={})
    shown = airflow.get("run", **RUN).text
    assert "there is no &lt;b&gt;tea" in shown and "line 7" not in shown
