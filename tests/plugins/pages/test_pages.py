"""The pages in a real Airflow: access control, escaping, and content."""

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
from trainyard.files import storage, uris
from trainyard.pages import pipelines
from trainyard.planning.paths import run_directory
from trainyard.schemas.runs import worker_progress
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.failure import Failure
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.runs.worker_progress import GroupProgress, WorkerProgress
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec
from trainyard.usage import resource_usage
from trainyard.usage.resource_usage import ResourceUsage

pytestmark = pytest.mark.airflow

RUN = {"conn_id": "trainyard_default", "dag_id": "ann.digits", "run_id": "r1"}
BROWSER = "text/html,application/xhtml+xml,*/*;q=0.8"
NASTY = ["a/b", 'say "hi"', "<script>alert(1)</script>", "../../etc", "..", "100% & more?#", "übung 1"]


class Links(HTMLParser):
    """The targets of the links of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.targets += [value or "" for name, value in attributes if tag == "a" and name == "href"]


def follow(airflow: Airflow, page: str, beginning: str) -> Any:
    """Follow the first link that begins so."""
    [link, *_] = [link for link in Links(page).targets if link.startswith(beginning)]
    path, _, query = link.partition("?")
    return airflow.get(path, **dict(parse_qsl(query)))


def test_a_user_sees_the_pipelines_that_the_user_may_read(airflow: Airflow) -> None:
    for dag_id in ("ann.digits", "bob.digits"):
        airflow.dag(dag_id)
        airflow.run(dag_id, "r1")
    page_text = airflow.get(user="ann").text
    assert "ann.digits" in page_text and "bob.digits" not in page_text


def test_a_user_who_may_not_read_the_runs_of_a_dag_sees_none_of_them(airflow: Airflow) -> None:
    airflow.dag("ann.secret")
    airflow.run("ann.secret", "r1")
    save_usage(task_key(airflow, "ann.secret"))
    assert "ann.secret" not in airflow.get().text + airflow.get("usage").text
    assert airflow.get("pipeline", **RUN | {"dag_id": "ann.secret"}).status_code == 403


@pytest.mark.parametrize("page", ["pipeline", "run", "report"])
def test_the_runs_of_unreadable_dags_are_refused(airflow: Airflow, page: str) -> None:
    airflow.dag("ann.digits")
    storage.replace(uris.join(airflow.run("ann.digits", "r1"), "report.html"), b"the report")
    assert airflow.get(page, user="ann", **RUN).status_code == 200
    assert airflow.get(page, user="bob", **RUN).status_code == 403


@pytest.mark.parametrize("page", ["", "pipeline", "run", "report", "usage"])
def test_without_login_nothing_is_shown(airflow: Airflow, page: str) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    answer = airflow.get(page, user=None, **RUN)
    assert answer.status_code == 401 and "digits" not in answer.text


@pytest.mark.parametrize("page", ["", "run"])
def test_a_browser_without_login_is_redirected_to_the_login_and_back(airflow: Airflow, page: str) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    login = airflow.get(page, user=None, accept=BROWSER, **RUN)
    assert (login.status_code, login.url.path) == (200, "/auth/login") and "digits" not in login.text
    path, _, query = login.url.params["next"].partition("?")
    assert path == f"/trainyard/{page}"
    assert airflow.get(page, accept=BROWSER, **dict(parse_qsl(query))).text == airflow.get(page, **RUN).text


def test_the_login_is_below_the_base_url_of_airflow(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://example.org/air/flow/")
    location = airflow.get("usage", user=None, accept=BROWSER).history[0].headers["Location"]
    assert location.startswith("/air/flow/api/v2/auth/login?next=%2Fair%2Fflow%2Ftrainyard%2Fusage")


def test_a_logged_in_user_without_permission_is_refused_without_another_login(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    assert airflow.get("run", user="bob", accept=BROWSER, **RUN).status_code == 403


@pytest.mark.parametrize("name", NASTY)
def test_a_name_with_special_characters_is_escaped_and_links_to_its_run(airflow: Airflow, name: str) -> None:
    dag_id = f"ann{name}"
    airflow.dag(dag_id)
    airflow.run(dag_id, name)
    page_text = airflow.get()
    assert escape(dag_id).replace("&quot;", "&#34;") in page_text.text and "<script>alert" not in page_text.text
    listed = follow(airflow, page_text.text, "pipeline?")
    assert listed.status_code == 200
    run = follow(airflow, listed.text, "run?")
    assert run.status_code == 200 and "export" in run.text and "local-1" in run.text
    assert "<script>alert" not in listed.text + run.text


@pytest.mark.parametrize("run_id", ["../../other", "..", ".", "/etc"])
def test_a_run_id_cannot_escape_the_directory_of_its_dag(airflow: Airflow, run_id: str) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    storage.replace(uris.join(airflow.root, "other", "report.html"), b"of somebody else")
    answer = airflow.get("report", **RUN | {"run_id": run_id})
    assert answer.status_code == 404 and "somebody" not in answer.text


def test_only_trainyard_connections_name_a_storage(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
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
    other = Airflow(airflow.app, uris.join(airflow.root, "elsewhere"))
    other.run("ann.digits", "r1")
    monkeypatch.setenv(
        "AIRFLOW_CONN_ELSEWHERE", json.dumps({"conn_type": "trainyard", "extra": {"storage": other.root}})
    )
    assert "conn_id=elsewhere" in airflow.get().text


def test_runs_of_a_connection_in_a_secrets_backend_are_listed_when_the_setting_names_it(
    airflow: Airflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.dag("ann.digits")
    other = Airflow(airflow.app, uris.join(airflow.root, "elsewhere"))
    other.run("ann.digits", "r1")
    vault = tmp_path / "vault.json"
    vault.write_text(json.dumps({"kept": {"conn_type": "trainyard", "extra": {"storage": other.root}}}))
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", "airflow.secrets.local_filesystem.LocalFilesystemBackend")
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND_KWARGS", json.dumps({"connections_file_path": str(vault)}))
    assert "conn_id=kept" not in airflow.get().text
    monkeypatch.setenv("AIRFLOW__TRAINYARD__CONNECTIONS", "kept, mistaken")
    assert "conn_id=kept" in airflow.get().text


def test_runs_are_listed_newest_first_in_pages(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    for number in range(30):
        airflow.run("ann.digits", f"run-{number:02}", number)
    first = airflow.get("pipeline", **RUN).text
    assert first.index("run-29") < first.index("run-05") and "run-04" not in first
    assert "Page 1 of 2" in first and "30 runs" in first
    second = airflow.get("pipeline", **RUN, page=2).text
    assert second.index("run-04") < second.index("run-00") and "run-05" not in second
    assert airflow.get("pipeline", **RUN, page=99).text == second, "the nearest that there is"


MODELS = {"conn_id": "trainyard_default", "dag_id": "ann.digits"}


@pytest.fixture
def read_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of runs that were read."""
    seen, read = list[str](), storage.read

    def note(uri: str, limit: int | None = None) -> bytes:
        if "/runs/" in uri:
            seen.append(uri)
        return read(uri, limit)

    monkeypatch.setattr(storage, "read", note)
    return seen


@pytest.mark.parametrize(("page", "count"), [("pipeline", 25), ("", pipelines.TREND_RUNS)])
def test_only_the_runs_of_the_shown_page_are_read(
    airflow: Airflow, read_files: list[str], page: str, count: int
) -> None:
    """The overview reads the newest ones, in search of a metric."""
    airflow.dag("ann.digits")
    for number in range(60):
        airflow.run("ann.digits", f"run-{number:02}", number)
    airflow.get(page, **RUN if page else {})
    assert len(set(read_files)) == count


def test_a_page_that_is_shown_again_reads_only_what_has_changed(airflow: Airflow, read_files: list[str]) -> None:
    airflow.dag("ann.digits")
    directory = airflow.run("ann.digits", "r1")
    save_usage(task_key(airflow, "ann.digits"))
    first = airflow.get("run", **RUN).text
    assert len(read_files) == 2 and "local-1" in first
    assert airflow.get("run", **RUN).text == first and len(read_files) == 2
    record = uris.join(directory, "records", "export.json")
    storage.replace(record, storage.read(record).replace(b"local-1", b"local-23"))
    read_files.clear()
    assert "local-23" in airflow.get("run", **RUN).text and read_files == [record]


def test_a_run_that_airflow_deleted_is_listed_last_by_its_directory(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "new")
    airflow.run("ann.digits", "old:1", known=False)
    listed = airflow.get("pipeline", **RUN).text
    assert listed.index(">new<") < listed.index(">old_1-")
    assert "local-1" in airflow.get("run", **RUN | {"run_id": "old:1"}).text


def test_an_unreadable_record_is_reported_and_hides_no_other_run(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "good")
    broken = airflow.run("ann.digits", "bad", 1)
    storage.replace(uris.join(broken, "records", "export.json"), b"{")
    listed = airflow.get("pipeline", **RUN).text
    assert "is not JSON" in listed and "7.0 s" in listed


def task_key(airflow: Airflow, dag_id: str = "ann.digits", run_id: str = "r1", task: str = "train") -> TaskKey:
    directory = run_directory(airflow.root, dag_id, run_id)
    return TaskKey(dag_id=dag_id, run_id=run_id, task_id=task, directory=directory)


def save_usage(key: TaskKey, gpu_hours: float = 0.0, page: str = "") -> None:
    """Save the usage of an application with two cores for an hour, busy for half of it."""
    usage = ResourceUsage(
        task_key=key, application="application_1_1", queue="train", started_at=NOON.timestamp(), seconds=3600.0,
        busy_seconds=1800.0, core_seconds=7200.0, gpu_seconds=3600 * gpu_hours, page=page,
    )  # fmt: skip
    resource_usage.save(usage, print)


def cells(page: str) -> list[list[str]]:
    """The rows of all tables of a page."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def test_resource_usage_covers_the_runs_that_the_user_may_read_most_idle_first(airflow: Airflow) -> None:
    for dag_id, gpu_hours in (("ann.small", 1.0), ("ann.large", 8.0), ("bob.digits", 80.0)):
        airflow.dag(dag_id)
        airflow.run(dag_id, "r1")
        save_usage(task_key(airflow, dag_id), gpu_hours)
    page_text = airflow.get("usage").text
    assert "bob" not in page_text
    assert ["Total", "4", "2", "9", "4.5", "4", "9"] in cells(page_text)
    assert page_text.index("ann.large") < page_text.index("ann.small")
    assert ["2026-W47", "4", "2", "9", "4.5", "4", "9"] in cells(page_text)


@pytest.mark.parametrize(
    ("page", "links"), [("http://rm:8088/cluster/app/application_1_1", True), ("javascript:alert(1)", False)]
)
def test_a_run_links_only_to_web_pages_of_its_applications(airflow: Airflow, page: str, links: bool) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1")
    save_usage(task_key(airflow), page=page)
    page_text = airflow.get("run", **RUN).text
    assert "2 core-hours, 1 of them busy" in page_text
    assert (page in Links(page_text).targets) is links


def test_a_running_worker_group_is_shown_with_its_workers_and_epochs_until_it_ends(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1", state="running")
    key = task_key(airflow)
    spec = TrainSpec.model_validate(
        {"task_key": key, "recipe": "toy.recipe:network", "dataset": "b", "model": "m", "options": {"epochs": 9}}
    )
    storage.replace(uris.join(key.directory, "specs", "train.json"), spec.to_json().encode())
    assert "train is running" in airflow.get("run", **RUN).text
    GroupProgress(
        task_key=key,
        at=NOON.timestamp(),
        workers=(WorkerProgress(rank=1, host="<b>n1", phase="forward", epoch=3, step=17),),
    ).save()
    log = EventLog(key.directory, "train", "worker 0")
    log.counter("epoch", epoch=1, loss=0.5, rows_per_second=10.0)
    log.counter("epoch", epoch=2, loss=0.25, rows_per_second=10.0)
    log.flush()
    page_text = airflow.get("run", **RUN).text
    assert ["1", "&lt;b&gt;n1", "3", "17", "forward"] in cells(page_text)
    assert "State at <time>2026-11-20 12:00:00</time> UTC; 9 epochs in total" in page_text
    assert "training: between 0.25 and 0.5; last 0.25 (epoch 2)" in page_text and "data-live" in page_text
    RunRecord(
        task_key=key,
        job="train",
        application="a2",
        started_at=1.0,
        seconds=1.0,
        status="failed",
        error="no",
        output={},
    ).save()
    assert "is running" not in airflow.get("run", **RUN).text


def test_a_task_whose_progress_cannot_be_read_is_noted_beside_the_stages_of_a_run(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1", state="running")
    key = task_key(airflow)
    spec = TrainSpec.model_validate({"task_key": key, "recipe": "toy:network", "dataset": "b", "model": "m"})
    storage.replace(uris.join(key.directory, "specs", "train.json"), spec.to_json().encode())
    storage.replace(worker_progress.progress_uri(key), b"{")
    answer = airflow.get("run", **RUN)
    assert answer.status_code == 200 and "export" in [row[0] for row in cells(answer.text)]
    assert "progress/train.json is not JSON" in answer.text


def test_a_run_that_is_over_has_no_running_tasks(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    directory = airflow.run("ann.digits", "r1", state="failed")
    storage.replace(uris.join(directory, "specs", "train.json"), b"{}")
    page_text = airflow.get("run", **RUN).text
    assert "is running" not in page_text and "data-live" not in page_text


def test_a_run_that_airflow_deleted_has_no_running_tasks(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    directory = airflow.run("ann.digits", "r1", known=False)
    storage.replace(uris.join(directory, "specs", "train.json"), b"{}")
    page_text = airflow.get("run", **RUN).text
    assert "is running" not in page_text and "data-live" not in page_text


def test_a_spec_of_an_unknown_job_is_noted_beside_the_stages_of_a_run(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    directory = airflow.run("ann.digits", "r1", state="running")
    storage.replace(uris.join(directory, "specs", "train.json"), b'{"document": "ensemble spec", "version": 3}')
    answer = airflow.get("run", **RUN)
    assert answer.status_code == 200 and [row[0] for row in cells(answer.text)][1:] == ["export"]
    assert "train.json is not the spec of a job that this release of Trainyard runs" in answer.text


def test_charts_of_metrics_have_a_text_alternative(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    for number, accuracy in enumerate((0.5, 0.75)):
        airflow.run("ann.digits", f"r{number}", number, job="evaluate", output={"metrics": {"accuracy": accuracy}})
    page_text = airflow.get("pipeline", **RUN).text
    assert 'aria-label="export: accuracy by run. accuracy: between 0.5 and 0.75; last 0.75 (run r1)"' in page_text
    assert ["r1", "0.75"] in cells(page_text) and ["r0", "0.5"] in cells(page_text)


def test_a_failed_attempt_without_a_record_is_shown_with_its_error(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    directory = airflow.run("ann.digits", "r1", state="failed")
    task_key = TaskKey(dag_id="ann.digits", run_id="r1", task_id="train", directory=directory, try_number=2)
    Failure(task_key=task_key, at=NOON.timestamp() + 60, error="YARN killed <b>the driver</b>.\nand more").save()
    page = airflow.get("run", **RUN).text
    assert "YARN killed &lt;b&gt;the driver&lt;/b&gt;." in page and "and more" not in page
    Failure(task_key=task_key.model_copy(update={"task_id": "export", "try_number": 1}), at=0, error="no tea").save()
    assert "no tea" not in airflow.get("run", **RUN).text


def test_a_failed_stage_shows_the_first_line_of_its_error(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    airflow.run("ann.digits", "r1", status="failed", error="there is no <b>tea\nat line 7", output={})
    page_text = airflow.get("run", **RUN).text
    assert "there is no &lt;b&gt;tea" in page_text and "line 7" not in page_text


@pytest.mark.parametrize("chosen", [[], ["r1"], ["r1", "r1"], [f"r{n}" for n in range(9)]])
def test_a_comparison_needs_a_few_runs(airflow: Airflow, chosen: list[str]) -> None:
    airflow.dag("ann.digits")
    query = "".join(f"&run={run_id}" for run_id in chosen)
    answer = airflow.get(f"compare?conn_id=trainyard_default&dag_id=ann.digits{query}&x=")
    assert answer.status_code == 400 and "Select 2 to 6 runs of ann.digits" in answer.text


def test_a_comparison_shows_only_runs_that_the_user_may_read(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    for number in range(2):
        airflow.run("ann.digits", f"r{number}", number)
    chosen = "compare?conn_id=trainyard_default&dag_id=ann.digits&run=r0&run=r1&x="
    assert airflow.get(chosen).status_code == 200
    assert airflow.get(chosen, user="bob").status_code == 403
    assert airflow.get(f"{chosen}&run=r2").status_code == 404


def test_the_models_of_a_pipeline_are_those_of_runs_that_the_user_may_read(airflow: Airflow) -> None:
    airflow.dag("ann.digits")
    assert "No training of this pipeline has succeeded yet" in airflow.get("models", **MODELS).text
    for number in range(3):
        directory = airflow.run("ann.digits", f"r{number}", number, job="train")
    assert [row[1] for row in cells(airflow.get("models", **MODELS).text)][1:] == ["r2", "r1", "r0"]
    assert airflow.get("models", user="bob", **MODELS).status_code == 403
    storage.replace(uris.join(directory, "specs", "export.json"), b"{")
    answer = airflow.get("models", **MODELS).text
    assert "3</span> of 3 models" in answer and "what export was asked to do" in answer


@pytest.mark.parametrize("damaged", [b"{", b"[]", b"\xff"])
def test_a_comparison_notes_files_that_cannot_be_read(airflow: Airflow, damaged: bytes) -> None:
    airflow.dag("ann.digits")
    for number in range(2):
        directory = airflow.run("ann.digits", f"r{number}", number, job="train")
    storage.replace(uris.join(directory, "specs", "export.json"), damaged)
    storage.replace(uris.join(directory, "events", "export", "worker 0.jsonl"), damaged)
    answer = airflow.get("compare?conn_id=trainyard_default&dag_id=ann.digits&run=r0&run=r1&x=")
    assert answer.status_code == 200 and ["run", "duration", "7.0 s", "7.0 s"] in cells(answer.text)
    assert "r1, export.json" in answer.text


def test_the_trend_of_a_pipeline_is_read_from_one_record_of_each_run(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.dag("ann.digits")
    for number in range(60):
        metrics = {"metrics": {"accuracy": 0.5 + number / 200}}
        airflow.run("ann.digits", f"run-{number:02}", number, job="evaluate", output=metrics)
    seen: list[str] = []
    read = storage.read
    monkeypatch.setattr(storage, "read", lambda uri, limit=None: seen.append(uri) or read(uri, limit))
    page_text = airflow.get().text
    assert "accuracy of the last 8 runs: between 0.76 and 0.795, last 0.795" in page_text
    assert len([uri for uri in seen if "/runs/" in uri]) == pipelines.TREND_RUNS


def test_the_scripts_of_charts_are_kept_by_browsers(airflow: Airflow) -> None:
    answer = airflow.get("charts.js", user=None)
    assert answer.status_code == 200 and "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Type"].startswith("text/javascript")


@pytest.mark.parametrize(("path", "user"), [("", "ann"), ("usage", "ann"), ("charts.js", None), ("missing", "ann")])
def test_no_other_site_shows_a_page_in_a_frame_or_guesses_its_type(
    airflow: Airflow, path: str, user: str | None
) -> None:
    headers = airflow.get(path, user=user).headers
    assert "frame-ancestors 'self'" in headers["Content-Security-Policy"].split("; ")
    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "same-origin")
