"""An export whose source files, code and options have not changed need not run."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from tests.plugins.evaluations import write_model
from tests.plugins.jobs.test_operator import context
from tests.trainer import datasets
from trainyard.files import storage
from trainyard.hooks.trainyard import Settings, TrainyardHook
from trainyard.jobs import lineage, reuse
from trainyard.jobs.operator import JobOperator
from trainyard.models import ensembles
from trainyard.operators import ExportOperator, Memory, Placement
from trainyard.planning.job import Job
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import manifest
from trainyard.schemas.datasets.fingerprint import UNKNOWN, find_unchanged, is_complete, split
from trainyard.schemas.specs.task_key import TaskKey

SPEC: dict[str, Any] = {
    "prepare": "toy.prepare:rows", "prepare_params": {}, "splits": {"train": 1.0}, "partition": None, "task_key": {},
    "sources": {}, "fit": None, "skip_unchanged": False,
}  # fmt: skip


def fingerprint(spec: dict[str, Any], dag_file: Path, **options: Any) -> str:
    """Return the fingerprint of an export with options of its application."""
    key = TaskKey(dag_id="toy", run_id="r1", task_id="export", directory="/s/runs/toy/r1")
    return reuse.fingerprint(Job("ExportOperator 'export'", key, "/s", spec, **options), dag_file)


@pytest.fixture
def spec(tmp_path: Path, pipelines: Path) -> dict[str, Any]:
    """An export of two files, whose dataset is there."""
    source = tmp_path / "source"
    for name in ("a.csv", "b.csv"):
        storage.replace(str(source / name), b"1,2\n")
    (pipelines / "toy" / "prepare.py").write_text("from . import words\n\ndef rows(spark, source): ...\n")
    (pipelines / "toy" / "words.py").write_text("WORDS = 1\n")
    (pipelines / "toy" / "vocabulary.json").write_text("{}")
    batches = datasets.write(tmp_path / "dataset", {"train": datasets.blobs(10)})
    spec = SPEC | {"source": {"format": "csv", "path": str(source), "options": {}, "table": None}, "dataset": batches}
    dataset = manifest.read_current(batches)
    provenance = dataset.provenance.model_copy(update={"fingerprint": fingerprint(spec, pipelines / "toy" / "dag.py")})
    partition = dataset.partitions[""].model_copy(update={"provenance": provenance, "version": 2})
    manifest.commit(batches, dataset.model_copy(update={"number": 2, "partitions": {"": partition}}))
    return spec


def judged(
    spec: dict[str, Any], pipelines: Path, application: dict[str, Any] | None = None, **changes: Any
) -> tuple[bool, str]:
    spec = spec | changes
    spec["fingerprint"] = fingerprint(spec, pipelines / "toy" / "dag.py", **(application or {}))
    dataset, why = find_unchanged(spec["dataset"], spec["partition"], spec["fingerprint"])
    return dataset is not None, why


def test_the_same_files_code_and_options_need_no_export(spec: dict[str, Any], pipelines: Path) -> None:
    unchanged, why = judged(spec, pipelines, task_key={"run": 2})
    assert unchanged
    assert why == (
        "sources, code and options are those of version 2, which application test wrote at 2026-01-01T00:00:00+00:00"
    )


@pytest.mark.parametrize("name", ["a.csv", "c.csv"])
def test_a_changed_file_needs_an_export(spec: dict[str, Any], pipelines: Path, name: str) -> None:
    storage.replace(f"{spec['source']['path']}/{name}", b"1,3\n")
    assert judged(spec, pipelines) == (False, "the source files changed since version 2")


@pytest.mark.parametrize("name", ["prepare.py", "words.py", "vocabulary.json", "__init__.py"])
def test_a_change_of_the_code_of_prepare_needs_an_export(spec: dict[str, Any], pipelines: Path, name: str) -> None:
    with (pipelines / "toy" / name).open("a") as file:
        file.write("\n")
    assert judged(spec, pipelines) == (False, "the code changed since version 2")


def test_a_change_of_the_code_of_fit_needs_an_export(spec: dict[str, Any], pipelines: Path) -> None:
    dag_file, fitting = pipelines / "toy" / "dag.py", pipelines / "scales" / "fit.py"
    storage.replace(str(fitting.with_name("__init__.py")), b"")
    storage.replace(str(fitting), b"def mean(spark, rows): ...\n")
    spec |= {"fit": "scales.fit:mean"}
    before = fingerprint(spec, dag_file).split()
    storage.replace(str(fitting), b"def mean(spark, rows): return 1\n")
    after = fingerprint(spec, dag_file).split()
    assert [old.split("=")[0] for old, new in zip(before, after, strict=True) if old != new] == ["code"]


def test_a_change_of_code_that_prepare_does_not_import_needs_no_export(spec: dict[str, Any], pipelines: Path) -> None:
    (pipelines / "toy" / "recipe.py").write_text("network = 'another'\n")
    os.utime(pipelines / "toy" / "prepare.py", (0, 0))
    assert judged(spec, pipelines)[0]


def test_the_reason_lists_every_change(spec: dict[str, Any], pipelines: Path) -> None:
    (pipelines / "toy" / "words.py").write_text("WORDS = 2\n")
    assert judged(spec, pipelines, splits={"train": 0.5, "test": 0.5}) == (
        False, "the code and the options changed since version 2",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("conf", {"spark.sql.session.timeZone": "UTC"}), ("env_vars", {"LANGUAGE": "en"}),
        ("files", ("hdfs:///labels.csv",)), ("jars", ("hdfs:///udf.jar",)), ("packages", ("org.x:y:1",)),
    ],
)  # fmt: skip
def test_an_option_of_the_application_that_decides_rows_needs_an_export(
    spec: dict[str, Any], pipelines: Path, option: str, value: Any
) -> None:
    assert judged(spec, pipelines, {option: value}) == (False, "the options changed since version 2")


def test_options_without_a_value_are_those_that_are_empty(spec: dict[str, Any], pipelines: Path) -> None:
    assert judged(spec, pipelines, {"conf": {}, "env_vars": {}})[0]


def hash_options(spec: dict[str, Any], pipelines: Path, **options: Any) -> str:
    return fingerprint(spec, pipelines / "toy" / "dag.py", **options)


def test_the_order_of_settings_and_variables_does_not_matter(spec: dict[str, Any], pipelines: Path) -> None:
    settings = {"a": "1", "b": "2"}
    for option in ("conf", "env_vars"):
        first, second = ({option: dict(items)} for items in (settings.items(), reversed(settings.items())))
        assert hash_options(spec, pipelines, **first) == hash_options(spec, pipelines, **second)


@pytest.mark.parametrize("option", ["files", "jars"])
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_local_file_counts_by_name_and_content(
    spec: dict[str, Any], pipelines: Path, tmp_path: Path, option: str, scheme: str
) -> None:
    def hash_file(name: str, content: str, alias: str = "") -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        return hash_options(spec, pipelines, **{option: (f"{scheme}{path}{alias}",)})

    before = hash_file("a/labels.csv", "1")
    assert before == hash_file("b/labels.csv", "1") == hash_file("a/other.csv", "1", "#labels.csv")
    assert len({before, hash_file("a/labels.csv", "2"), hash_file("a/other.csv", "1")}) == 3


def test_a_file_that_cannot_be_read_has_no_fingerprint(
    spec: dict[str, Any], pipelines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise PermissionError

    (tmp_path / "labels.csv").write_text("1")
    monkeypatch.setattr(storage, "checksum", refuse)
    assert hash_options(spec, pipelines, files=(str(tmp_path / "labels.csv"),)) == ""


@pytest.fixture
def fingerprint_of(dag_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Returns the fingerprint of an export with some options."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    monkeypatch.setattr(TrainyardHook, "get_conn", lambda self: Settings(f"file://{tmp_path}/s", shared=True))
    monkeypatch.setattr(JobOperator, "run_plan", lambda self, context, plan: plan.job.spec)
    source = tmp_path / "source.json"
    source.write_text('{"x": 1.5}\n')

    def compute(**options: Any) -> str:
        dag = DAG("toy", schedule=None)
        dag.fileloc = str(dag_file)
        operator = ExportOperator(
            task_id="export", dag=dag, prepare="toy.prepare:rows", source=str(source), dataset="dataset",
            **({"format": "json"} | options),
        )  # fmt: skip
        return str(operator.execute(context(operator))["fingerprint"])

    return compute


@pytest.mark.parametrize("options", [{"env_vars": {"A": "1"}}, {"conf": {"spark.a": "1"}}, {"files": ["hdfs:///a"]}])
def test_the_fingerprint_of_an_operator_has_its_options(
    fingerprint_of: Callable[..., str], options: dict[str, Any]
) -> None:
    assert fingerprint_of() != fingerprint_of(**options) == fingerprint_of(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"memory": Memory(heap="3g")}, {"placement": Placement(queue="etl")}, {"executors": 3, "cores_per_executor": 2},
        {"preflight": "off", "poll_interval": 9}, {"force": True},
    ],
)  # fmt: skip
def test_options_that_change_no_rows_are_not_part_of_a_fingerprint(
    fingerprint_of: Callable[..., str], options: dict[str, Any]
) -> None:
    assert fingerprint_of() == fingerprint_of(**options) != ""


def test_the_parent_run_of_openlineage_is_not_part_of_a_fingerprint(
    fingerprint_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint_of(conf={"spark.a": "1"})
    added = {"spark.openlineage.parentRunId": "7"}
    monkeypatch.setattr(lineage, "inject_into_spark", lambda conf, context: conf | added)
    assert fingerprint_of(conf={"spark.a": "1"}) == before


def test_a_new_partition_needs_an_export(spec: dict[str, Any], pipelines: Path) -> None:
    assert judged(spec, pipelines, partition="2026-01-01") == (
        False,
        "the dataset has other partitions: an unnamed one",
    )


@pytest.fixture
def partitioned(spec: dict[str, Any], pipelines: Path) -> dict[str, Any]:
    """An export of one of two partitions."""
    spec = spec | {"partition": "2026-01-02"}
    dataset = manifest.read_current(spec["dataset"])
    unchanged = fingerprint(spec, pipelines / "toy" / "dag.py")
    provenance = dataset.provenance.model_copy(update={"fingerprint": unchanged})
    partition = dataset.partitions[""].model_copy(update={"provenance": provenance})
    partitions = dict.fromkeys(("2026-01-01", "2026-01-02"), partition)
    manifest.commit(spec["dataset"], dataset.model_copy(update={"number": 3, "partitions": partitions}))
    return spec


def test_an_unchanged_partition_beside_others_needs_no_export(partitioned: dict[str, Any], pipelines: Path) -> None:
    assert judged(partitioned, pipelines)[0]


def test_the_order_of_options_does_not_matter(spec: dict[str, Any], pipelines: Path) -> None:
    assert judged(dict(reversed(spec.items())), pipelines)[0]


def test_an_export_without_a_partition_replaces_those_that_are_there(
    partitioned: dict[str, Any], pipelines: Path
) -> None:
    assert judged(partitioned, pipelines, partition=None) == (
        False, "the dataset has other partitions: 2026-01-01, 2026-01-02",
    )  # fmt: skip


def test_an_export_without_a_partition_replaces_those_beside_an_unnamed_one(
    spec: dict[str, Any], pipelines: Path
) -> None:
    dataset = manifest.read_current(spec["dataset"])
    partitions = dataset.partitions | {"2026-01-01": dataset.partitions[""]}
    manifest.commit(spec["dataset"], dataset.model_copy(update={"number": 3, "partitions": partitions}))
    assert judged(spec, pipelines) == (False, "the dataset has other partitions: an unnamed one, 2026-01-01")


def test_a_dataset_that_was_written_by_other_means_is_exported_again(
    spec: dict[str, Any], pipelines: Path, tmp_path: Path
) -> None:
    other = datasets.write(tmp_path / "other", {"train": datasets.blobs(10)})
    assert judged(spec, pipelines, dataset=other) == (False, "version 1 has no fingerprint")


def test_a_missing_dataset_needs_an_export(spec: dict[str, Any], pipelines: Path, tmp_path: Path) -> None:
    assert judged(spec, pipelines, dataset=str(tmp_path / "none")) == (False, "there is no dataset yet")


def test_a_source_without_files_always_needs_an_export(spec: dict[str, Any], pipelines: Path) -> None:
    source = {"format": "jdbc", "path": None, "table": None, "options": {}}
    assert judged(spec, pipelines, source=source) == (
        False, "the source files, the versions of tables or the code of prepare cannot be listed",
    )  # fmt: skip


def test_an_export_of_several_sources_is_repeated_if_the_files_of_one_have_changed(
    spec: dict[str, Any], pipelines: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        storage.replace(str(folder / "a.csv"), b"1,2\n")
    several = {
        "source": None,
        "sources": {name: spec["source"] | {"path": str(tmp_path / name)} for name in ("first", "second")},
    }
    dag_file = pipelines / "toy" / "dag.py"
    before = fingerprint(spec | several, dag_file)
    assert before == fingerprint(spec | several, dag_file) != ""
    storage.replace(str(second / "b.csv"), b"3,4\n")
    after = fingerprint(spec | several, dag_file)
    assert before.split()[0] != after.split()[0] and before.split()[1:] == after.split()[1:]
    several["sources"]["second"] |= {"path": None}
    assert fingerprint(spec | several, dag_file) == "", "a query has no files"


def test_the_versions_of_tables_are_left_to_spark(spec: dict[str, Any], pipelines: Path) -> None:
    dag_file = pipelines / "toy" / "dag.py"
    table = {"source": {"format": "table", "path": None, "table": "sales.orders", "options": {}}}
    text = fingerprint(spec | table, dag_file)
    assert split(text)["tables"] == UNKNOWN and not is_complete(text)
    assert judged(spec, pipelines, **table) == (False, "Spark knows the versions of its tables when it runs")


def test_an_export_whose_files_or_code_cannot_be_listed_has_no_fingerprint(
    spec: dict[str, Any], pipelines: Path, tmp_path: Path
) -> None:
    dag_file = pipelines / "toy" / "dag.py"
    (tmp_path / "empty").mkdir()
    for changes in (
        {"source": spec["source"] | {"path": None}},
        {"source": spec["source"] | {"path": str(tmp_path / "empty")}},
        {"prepare": "pydantic.main:BaseModel"},
        {"prepare": "toy.nowhere:rows"},
        {"model": str(tmp_path / "nowhere")},
    ):
        assert fingerprint(spec | changes, dag_file) == ""


def test_a_source_whose_client_has_no_credentials_here_has_no_fingerprint(
    spec: dict[str, Any], pipelines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reads it with its own; a client raises errors of any class."""

    class NoCredentialsError(Exception):
        pass

    def refuse(uri: str) -> Any:
        raise NoCredentialsError("Unable to locate credentials")

    monkeypatch.setattr(storage, "list_files", refuse)
    assert fingerprint(spec, pipelines / "toy" / "dag.py") == ""


@pytest.fixture
def features(spec: dict[str, Any], pipelines: Path, tmp_path: Path) -> dict[str, Any]:
    """An export of features of a model, whose recipe is in another package."""
    for name, text in (("__init__.py", ""), ("net.py", "from . import layers\nbuild = None\n"), ("layers.py", "")):
        storage.replace(str(pipelines / "nets" / name), text.encode())
    artifact = write_model(tmp_path / "model", b"old").model_copy(update={"recipe": "nets.net:build"})
    storage.replace(str(tmp_path / "model" / "model.json"), artifact.to_json().encode())
    return spec | {"model": str(tmp_path / "model")}


def test_the_fingerprint_of_features_has_the_weights_of_the_model(features: dict[str, Any], pipelines: Path) -> None:
    hashes = dict(part.split("=") for part in fingerprint(features, pipelines / "toy" / "dag.py").split())
    assert list(hashes) == ["source", "code", "options", "model"]
    assert hashes["model"] == b"old".hex().ljust(16, "0")
    assert {len(value) for value in hashes.values()} == {16}


@pytest.mark.parametrize("name", ["net.py", "layers.py"])
def test_a_change_of_the_code_of_the_model_needs_another_export_of_features(
    features: dict[str, Any], pipelines: Path, name: str
) -> None:
    dag_file = pipelines / "toy" / "dag.py"
    before = fingerprint(features, dag_file).split()
    with (pipelines / "nets" / name).open("a") as file:
        file.write("\n")
    after = fingerprint(features, dag_file).split()
    assert [old.split("=")[0] for old, new in zip(before, after, strict=True) if old != new] == ["code"]


def test_a_change_of_the_code_of_any_member_of_an_ensemble_needs_another_export_of_features(
    features: dict[str, Any], pipelines: Path, tmp_path: Path
) -> None:
    dag_file, ensemble = pipelines / "toy" / "dag.py", str(tmp_path / "both")
    storage.replace(str(pipelines / "others" / "net.py"), b"build = None\n")
    first = model_artifact.read_current(features["model"])
    other = write_model(tmp_path / "other", b"new").model_copy(update={"recipe": "others.net:build"})
    artifact = ensembles.build([(features["model"], first), (str(tmp_path / "other"), other)])
    storage.replace(f"{ensemble}/model.json", artifact.to_json().encode())
    before = fingerprint(features | {"model": ensemble}, dag_file).split()
    storage.replace(str(pipelines / "others" / "net.py"), b"build = 1\n")
    after = fingerprint(features | {"model": ensemble}, dag_file).split()
    assert [old.split("=")[0] for old, new in zip(before, after, strict=True) if old != new] == ["code"]
