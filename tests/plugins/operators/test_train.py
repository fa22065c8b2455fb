"""A training on what was added since a version does not start an application if that is nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from tests.plugins.evaluations import write_model
from tests.plugins.jobs.test_operator import RecordingBackend, context
from tests.trainer import datasets
from trainyard.clusters.local import LocalCluster
from trainyard.compat import AirflowException, AirflowFailException, AirflowSkipException
from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.hooks.trainyard import Settings, TrainyardHook
from trainyard.operators import TrainOperator
from trainyard.planning.paths import attempt_uri
from trainyard.schemas.datasets import manifest
from trainyard.schemas.specs.task_key import TaskKey

Build = Callable[..., TrainOperator]


def submit(*_: Any) -> Any:
    raise TrainyardError("it was submitted")


@pytest.fixture
def build(dag_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Return a function that builds the training of a dataset whose version 1 the champion was trained on."""
    root = f"file://{tmp_path}/s"
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    monkeypatch.setattr(TrainyardHook, "get_conn", lambda self: Settings(root, shared=True))
    monkeypatch.setattr(LocalCluster, "create_backend", lambda *_: RecordingBackend(submit))
    datasets.write(tmp_path / "s" / "data", {"train": datasets.blobs(10)})
    write_model(tmp_path / "s" / "champion", b"w", dataset=f"{root}/data")
    common = {"recipe": "toy.recipe:network", "dataset": "data", "model": "model", "retries": 1}

    def build(**options: Any) -> TrainOperator:
        dag = DAG("toy", schedule=None)
        dag.fileloc = str(dag_file)
        return TrainOperator(task_id="train", dag=dag, **common | options)

    return build


def add_day(tmp_path: Path) -> None:
    dataset = manifest.read_current(f"{tmp_path}/s/data")
    day = dataset.partitions[""].model_copy(update={"version": 2})
    manifest.commit(f"{tmp_path}/s/data", dataset.model_copy(update={"number": 2, "partitions": {"day": day}}))


@pytest.mark.parametrize(
    ("since", "named"),
    [
        ("champion", r"dataset_since='file://.*/s/champion@\w{16}' was trained on version 1, and"),
        (1, "dataset_since=1, and"),
    ],
)
def test_it_fails_and_names_what_to_write_or_is_skipped(build: Build, since: Any, named: str) -> None:
    error = rf"TrainOperator 'train': {named} version 1 of file://.*/s/data adds nothing to that\. Export .* or remove"
    with pytest.raises(AirflowFailException, match=error):
        (operator := build(dataset_since=since)).execute(context(operator, task_id="train"))
    skipped = build(dataset_since=since, on_nothing_new="skip")
    with pytest.raises(AirflowSkipException, match=rf"^TrainOperator 'train' is skipped: {named} version 1 of"):
        skipped.execute(context(skipped, task_id="train"))


@pytest.mark.parametrize("since", ["champion", "no/champion/yet", 0])
def test_it_is_submitted_where_something_was_added(build: Build, tmp_path: Path, since: Any) -> None:
    add_day(tmp_path)
    operator = build(dataset_since=since, on_nothing_new="skip")
    with pytest.raises(AirflowException, match="it was submitted"):
        operator.execute(context(operator, task_id="train"))


def test_a_retry_resumes_what_an_attempt_has_begun_although_the_champion_was_replaced_meanwhile(
    build: Build, tmp_path: Path
) -> None:
    operator = build(dataset_since="champion")
    key = TaskKey(dag_id="toy", run_id="r1", task_id="train", directory=f"{tmp_path}/s/runs/toy/r1")
    storage.replace(attempt_uri(key), b"{}")
    with pytest.raises(AirflowException, match="it was submitted"):
        operator.execute(context(operator, task_id="train", try_number=2))
    with pytest.raises(AirflowFailException, match="adds nothing"):
        operator.execute(context(operator, task_id="train", try_number=2, max_tries=2))  # it was cleared
