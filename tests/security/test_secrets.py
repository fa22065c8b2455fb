"""Secrets that Airflow or an exception bring into an option or an error: none is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.execution_time.context import ConnectionAccessor, VariableAccessor

from tests.plugins.contexts import make_context
from trainyard import listener
from trainyard.backends import driver
from trainyard.errors import TrainyardError
from trainyard.hooks.trainyard import Settings
from trainyard.jobs.task_instance import task_key_of
from trainyard.operators import ExportOperator, PromoteOperator
from trainyard.schemas.runs import failure
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.validation.secrets import mask

MARKER = "hunter2-marker"


@pytest.fixture(autouse=True)
def connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The connections and the Variables of an Airflow; none of them has a password of a known form."""
    database = {"conn_type": "postgres", "host": "db.example.org", "password": MARKER}
    monkeypatch.setenv("AIRFLOW_CONN_DB", json.dumps(database))
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", f"trainyard:///?storage=file%3A%2F%2F{tmp_path}")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    monkeypatch.setenv("AIRFLOW_VAR_DIGITS_SOURCE", "/data/digits")
    monkeypatch.setenv("AIRFLOW_VAR_API_KEY", f"{MARKER}-2")


def render(operator: Any) -> None:
    """Render an operator's templates, as Airflow does in the process of a task."""
    operator.render_template_fields({"conn": ConnectionAccessor(), "var": {"value": VariableAccessor(False)}})


def build_export(folder: Path, **options: Any) -> ExportOperator:
    (folder / "dags/toy").mkdir(parents=True)
    (folder / "dags/toy/__init__.py").touch()
    (folder / "dags/toy/prepare.py").write_text("def rows(frame): return {'train': frame}\n")
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(folder / "dags/toy/dag.py")
    given = {"prepare": "toy.prepare:rows", "source": "/data", "dataset": "d", **options}
    return ExportOperator(task_id="export", dag=dag, **given)


@pytest.mark.parametrize(
    "template",
    [
        "{% set c = conn.db %}jdbc:{{ c.password }}",
        "{{ (conn | attr('db')).password }}",
        "{% set v = var.value %}{{ v.api_key }}",
    ],
)
@pytest.mark.parametrize("option", ["conf", "env_vars", "prepare_params", "source", "files"])
def test_an_option_into_which_a_template_brings_a_secret_is_refused(tmp_path: Path, option: str, template: str) -> None:
    """It was in specs, records, pages and the command lines of a machine."""
    values = {"source": f"/data/{template}", "files": [f"/data/{template}"]}
    operator = build_export(tmp_path, **{option: values.get(option, {"spark.x": template})})
    render(operator)
    key = TaskKey(dag_id="toy", run_id="r", task_id="export", directory=f"{tmp_path}/runs/toy/r")
    with pytest.raises(TrainyardError, match=rf"{option}.* a secret") as refused:
        operator.plan(key, Settings(str(tmp_path)))
    assert MARKER not in str(refused.value)


def test_a_variable_that_is_no_secret_may_be_read(tmp_path: Path) -> None:
    operator = build_export(tmp_path, source="{{ var.value.digits_source }}", dataset="of-{{ conn.db.host }}")
    render(operator)
    key = TaskKey(dag_id="toy", run_id="r", task_id="export", directory=f"{tmp_path}/runs/toy/r")
    assert operator.plan(key, Settings(str(tmp_path), shared=True)).job.spec["source"]["path"] == "/data/digits"


def test_a_promotion_names_no_secret(tmp_path: Path) -> None:
    operator = PromoteOperator(
        task_id="promote", evaluation="e", champion="{% set c = conn.db %}{{ c.password }}", metric="accuracy"
    )
    render(operator)
    with pytest.raises(Exception, match=r"champion.* a secret") as refused:
        operator.execute(make_context(operator))
    assert MARKER not in str(refused.value)


class TaskInstance:
    """What Airflow hands to its listeners."""

    dag_id, run_id, task_id, map_index, try_number, max_tries = "toy", "r", "export", -1, 1, 0

    def __init__(self, task: Any) -> None:
        self.task = task


def test_the_stored_failure_of_a_task_has_no_secret_of_its_connections(tmp_path: Path) -> None:
    operator = build_export(tmp_path, conf={"spark.x": "{% set c = conn.db %}{{ c.password }}"})
    render(operator)
    instance: Any = TaskInstance(operator)
    error = RuntimeError(f"cannot log in as {MARKER}; tried password=other-marker")
    listener.on_task_instance_failed("running", instance, error)  # type: ignore[arg-type]
    stored = failure.read_latest(task_key_of(instance, f"file://{tmp_path}"))
    assert stored and stored.error == "cannot log in as ***; tried password=***"


def test_the_record_of_an_application_has_no_secret_of_a_known_form(tmp_path: Path) -> None:
    """Drivers have no connections of Airflow, but a URL that an exception repeats."""
    try:
        raise RuntimeError(f"no route to jdbc:postgresql://db/clicks?user=me&password={MARKER}")
    except RuntimeError as error:
        message, trace = driver.describe_failure(error)
    key = TaskKey(dag_id="toy", run_id="r", task_id="export", directory=str(tmp_path))
    record = RunRecord(
        task_key=key, job="export", application="a", started_at=1.0, seconds=1.0, status="failed", error=message,
        traceback=trace,
    )  # fmt: skip
    assert MARKER not in f"{message}{trace}" + record.to_json()
    assert record.error == "RuntimeError: no route to jdbc:postgresql://db/clicks?user=me&password=***"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"GET http://me:{MARKER}@mlflow:5000/x failed", "GET http://***@mlflow:5000/x failed"),
        (f"jdbc:oracle:thin:me/{MARKER}@db:1521", "jdbc:oracle:***@db:1521"),
        (f"connect(user='me', password='{MARKER}')", "connect(user='me', password='***')"),
        (f"{{'user': 'me', 'password': '{MARKER}'}}", "{'user': 'me', 'password': '***'}"),
        (f"Authorization: Bearer {MARKER}", "Authorization: Bearer ***"),
        ("Authorization: Basic bWU6bWFya2Vy", "Authorization: Basic ***"),
        ("token ghp_" + "a1B2" * 9 + " is not valid", "token *** is not valid"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln is old", "*** is old"),
        (f"key:\n-----BEGIN PRIVATE KEY-----\n{MARKER}\n-----END PRIVATE KEY-----\nend", "key:\n***\nend"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{MARKER}", "***"),
        (f"?sig={MARKER}&sv=2", "?sig=***&sv=2"),
    ],
)
def test_a_text_is_stored_without_the_secrets_in_it(text: str, masked: str) -> None:
    assert mask(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "hdfs://nn:8020/user/me@corp is not readable",
        "option env_vars: password: what is written there can be read by others",
        "max_tokens=5, pad_token='<pad>', token_ids=[1, 2]",
        "File \"/x/prepare.py\", line 3, in rows: if key == 'x':",
        "assert password == expected",
    ],
)
def test_a_text_without_secrets_is_stored_as_it_is(text: str) -> None:
    assert mask(text) == text
