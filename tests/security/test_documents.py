"""Documents that somebody else has written: they lead to nothing beside the place where they lie."""

from __future__ import annotations

import copy
import json
import time
import tracemalloc
import typing
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import trainyard.schemas
from tests.plugins.evaluations import evaluation, scores, write_model
from tests.plugins.results import output
from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.report import curves, timeline
from trainyard.schemas import model_artifact, types
from trainyard.schemas.datasets import manifest, versions
from trainyard.schemas.datasets.manifest import DatasetManifest, Partition, Provenance, Shard, Split
from trainyard.schemas.document import Document
from trainyard.schemas.evaluation import Evaluation, Scores
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.promotion import Promotion, Rule
from trainyard.schemas.runs import events, run_record, worker_progress
from trainyard.schemas.runs.checkpoint import Checkpoint, File
from trainyard.schemas.runs.failure import Failure
from trainyard.schemas.runs.owner import Owner, find_owner
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.runs.worker_progress import GroupProgress, WorkerProgress
from trainyard.schemas.specs import (
    SPECS,
    EvaluateSpec,
    ExportSpec,
    FeaturizeSpec,
    PredictSpec,
    ScriptSpec,
    Source,
    TaskKey,
    TrainSpec,
)

OUTSIDE = ["../../x", "/etc/passwd", "shards/../../x", "a/../b", "..", "", ".", "file:///etc", "a\\b", "a\0b", "a//b"]


def build_manifest(number: int = 1, directory: str = "shards/w") -> DatasetManifest:
    provenance = Provenance(application="a", written_at="2026-01-01T00:00:00+00:00")
    shard = Shard(f"{directory}/train.arrow", 1, 4, "0" * 64, 0, 1, [4], [0])
    return DatasetManifest(
        number=number, columns=(), splits={"train": Split(rows=1, shards=(shard,), statistics={})},
        partitions={"": Partition(directory=directory, version=number, rows=1, provenance=provenance)},
        spark_schema="{}", provenance=provenance, content_hash="ab",
    )  # fmt: skip


def build_key(directory: str, task: str = "train") -> TaskKey:
    return TaskKey(dag_id="toy", run_id="r", task_id=task, directory=directory)


def build_record(directory: str, task: str = "train", **fields: Any) -> RunRecord:
    return RunRecord(
        task_key=build_key(directory, task), job="train", application="application_1_0001", started_at=1.0,
        seconds=1.0, status="succeeded", output=output("train", **fields),
    )  # fmt: skip


def build_documents(folder: Path) -> list[Document]:
    """Return a document of each kind, with all of its fields."""
    model = write_model(folder / "model", b"weights", {"accuracy": 0.5})
    key = build_key(str(folder / "runs/toy/r"))
    return [
        build_manifest(),
        model,
        evaluation(Scores(**scores(str(folder / "model"), model.weights_sha256, accuracy=0.9))),
        Promotion(
            model=str(folder), weights_sha256="ab", evaluation="e", rule=Rule(metric="accuracy"), why="better",
            promoted_at="2026-01-01T00:00:00+00:00",
        ),
        Checkpoint(
            updates=1, epoch=0, step=1, group=1, world=1, best=False, fingerprint="f", application="a", saved_at=1.0,
            files={"__0_0.distcp": File(bytes=1, sha256="ab")},
        ),
        build_record(key.directory, metrics={"accuracy": 0.5}),
        Failure(task_key=key, at=1.0, error="it failed"),
        GroupProgress(
            task_key=key, at=1.0, workers=(WorkerProgress(rank=0, host="h", phase="forward", epoch=1, step=1),)
        ),
        Owner(task_key=key, airflow="trainyard_airflow_1"),
        *build_specs(key),
    ]  # fmt: skip


def build_specs(key: TaskKey) -> list[Document]:
    """Return a spec of each kind of job."""
    prepare, source = "toy.prepare:rows", Source(format="csv", path="/data")
    specs = [
        ExportSpec(task_key=key, prepare=prepare, source=source, dataset="/d", shapes={"x": (2,)}),
        FeaturizeSpec(task_key=key, prepare=prepare, source=source, dataset="/d", model="/m", layer="body"),
        TrainSpec(task_key=key, recipe="toy.recipe:build", dataset="/d", model="/m", workers=2),
        EvaluateSpec(task_key=key, model="/m", dataset="/d", metrics=("accuracy",)),
        PredictSpec(task_key=key, model="/m", source=source, prepare=prepare, keys=("id",), output="/o"),
        ScriptSpec(task_key=key, script="toy.loop", arguments=("--x", "1"), workers=2),
    ]  # fmt: skip
    assert {type(spec) for spec in specs} == {*SPECS.values()}
    return specs


def change(document: Document, path: str, value: Any) -> str:
    """Return the JSON of a document with another value at a path such as `splits.train.rows`."""
    fields = json.loads(document.to_json())
    *parents, name = path.split("/")
    target = fields
    for parent in parents:
        target = target[int(parent) if isinstance(target, list) else parent]
    target[int(name) if isinstance(target, list) else name] = value
    return json.dumps(fields)


@pytest.mark.parametrize("value", OUTSIDE)
@pytest.mark.parametrize(
    "field", ["splits/train/shards/path/0", "splits/train/shards/sha256/0", "partitions//directory"]
)
def test_a_manifest_names_no_file_outside_of_its_dataset(field: str, value: str) -> None:
    with pytest.raises(TrainyardError, match="is not a valid dataset manifest"):
        DatasetManifest.from_json(change(build_manifest(), field, value))


def test_versions_that_name_a_directory_elsewhere_remove_nothing_there(tmp_path: Path) -> None:
    """`trainyard expire` and `gc` removed it, with everything in it."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("mine")
    dataset = str(tmp_path / "dataset")
    for number in (1, 2, 3):
        text = change(build_manifest(number, f"shards/w{number}"), "partitions//directory", "../precious")
        storage.create(uris.join(dataset, "versions", f"{number:08d}.json"), text.encode())
    with pytest.raises(TrainyardError, match="is not a valid dataset manifest"):
        versions.expire(dataset, keep=1, days=0)
    assert (tmp_path / "precious/file").read_text() == "mine"


@pytest.mark.parametrize("part", ["..", "../x", "a/../../x"])
def test_no_path_leads_out_of_where_it_is_joined_to(part: str) -> None:
    with pytest.raises(TrainyardError, match=r"it has the part '\.\.'"):
        uris.join("file:///data", "a", part)


@pytest.mark.parametrize("value", [*OUTSIDE, "other/weights.safetensors"])
def test_a_model_names_no_weights_outside_of_its_folder(tmp_path: Path, value: str) -> None:
    artifact = write_model(tmp_path / "model", b"weights")
    (tmp_path / "model/model.json").write_text(change(artifact, "weights/0/path", value))
    with pytest.raises(TrainyardError, match=r"is not a valid model artifact|which is not in its folder"):
        model_artifact.read_current(str(tmp_path / "model"))


@pytest.mark.parametrize("value", ["../../other", "b" * 64, "", "AB"])
def test_an_evaluation_promotes_no_other_weights_than_those_it_lies_beside(tmp_path: Path, value: str) -> None:
    artifact = write_model(tmp_path / "model", b"weights")
    document = evaluation(Scores(**scores(str(tmp_path / "model"), artifact.weights_sha256, accuracy=0.9)))
    Path(document.uri).parent.mkdir(parents=True)
    Path(document.uri).write_text(change(document, "model/weights_sha256", value))
    with pytest.raises(TrainyardError, match=r"is not a valid evaluation|but lies beside"):
        Evaluation.load(document.uri)


def test_documents_are_where_they_lie_and_not_where_they_say(tmp_path: Path) -> None:
    """Also after a storage was moved."""
    theirs, mine = str(tmp_path / "theirs"), str(tmp_path / "mine")
    artifact = write_model(tmp_path / "theirs/model", b"weights")
    scored = evaluation(Scores(**scores(f"{mine}/model", artifact.weights_sha256, accuracy=0.9)))
    place = scored.uri.replace(mine, theirs)
    storage.replace(place, scored.to_json().encode())
    assert Evaluation.load(place).model.uri == f"{theirs}/model"
    storage.replace(f"{theirs}/records/train.json", build_record(mine).to_json().encode())
    [record] = run_record.read_run(theirs)
    assert record.task_key.directory == theirs
    progress = GroupProgress(task_key=build_key(mine), at=1.0, workers=())
    storage.replace(f"{theirs}/progress/train.json", progress.to_json().encode())
    latest = worker_progress.read_latest(build_key(theirs))
    assert latest and latest.task_key.directory == theirs


def test_a_record_of_another_task_is_refused_and_costs_itself_only(tmp_path: Path) -> None:
    build_record(str(tmp_path), "good").save()
    storage.replace(f"{tmp_path}/records/bad.json", build_record(str(tmp_path), "other").to_json().encode())
    unreadable: dict[str, str] = {}
    assert [record.task_key.task for record in run_record.read_run(str(tmp_path), unreadable)] == ["good"]
    assert "is a document of task 'other'" in unreadable["records/bad.json"]


@pytest.mark.parametrize("value", ["../../ws/v1/cluster", "application_1_1?user.name=root", "a\nb", "a" * 101])
def test_the_id_of_an_application_is_one(tmp_path: Path, value: str) -> None:
    with pytest.raises(TrainyardError, match="is not a valid run record"):
        RunRecord.from_json(change(build_record(str(tmp_path)), "application", value))


@pytest.mark.parametrize("value", ["../train", "a/b", "..", "", "a\nb"])
def test_the_id_of_a_task_is_no_path(tmp_path: Path, value: str) -> None:
    with pytest.raises(TrainyardError, match="is not a valid run record"):
        RunRecord.from_json(change(build_record(str(tmp_path)), "task_key/task_id", value))


def list_models(cls: type[BaseModel] = Document) -> Iterator[type[BaseModel]]:
    for subclass in cls.__subclasses__():
        if subclass.__module__.startswith(trainyard.schemas.__name__):
            yield subclass
        yield from list_models(subclass)


PATHS = {"path", "directory", "folder", "files", "sha256", "weights_sha256", "dataset_hash", "content_hash", "split"}
"""The names of fields that become a path or a part of one."""
BY_PLACE = {(TaskKey, "directory")}
"""Fields that are replaced by where the document lies."""


def test_no_field_that_becomes_a_path_is_a_plain_string() -> None:
    models = {*list_models(), *list_models(BaseModel)}
    assert {DatasetManifest, ModelArtifact, Partition, Scores} <= models
    plain = []
    for model in models:
        for name, hint in typing.get_type_hints(model, include_extras=True).items():
            is_stored = model.__module__.split(".")[2] != "specs" or model is TaskKey  # specs are what a user writes
            if name in PATHS and is_stored and (model, name) not in BY_PLACE and _is_plain(hint):
                plain.append(f"{model.__name__}.{name}")
    assert plain == []


def _is_plain(hint: Any) -> bool:
    if typing.get_origin(hint) is typing.Annotated:
        return False
    return hint is str or any(map(_is_plain, typing.get_args(hint)[:1]))


NASTY = st.one_of(
    st.sampled_from(
        [*OUTSIDE, None, True, -1, 1 << 70, 1e308, float("nan"), [], {}, [[]], {"": {}}, "a" * 70_000, "💥"]
    ),
    st.text(max_size=20),
    st.integers(),
    st.floats(),
    st.recursive(st.none(), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2)),
)


def list_leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from list_leaves(item, (*path, key))


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[type[Document], Any]]:
    built = build_documents(tmp_path_factory.mktemp("documents"))
    return [(type(document), json.loads(document.to_json())) for document in built]


@pytest.mark.slow
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_document_with_any_other_value_is_read_or_refused_at_once(documents: Any, data: st.DataObject) -> None:
    kind, fields = data.draw(st.sampled_from(documents))
    changed = copy.deepcopy(fields)
    *parents, name = data.draw(st.sampled_from([path for path in list_leaves(changed) if path]))
    target = changed
    for parent in parents:
        target = target[parent]
    target[name] = data.draw(NASTY)
    began = time.process_time()
    with suppress(TrainyardError):
        kind.from_json(json.dumps(changed)).place("file:///storage/owners/train.json")
    assert time.process_time() - began < 1


@pytest.mark.parametrize("shards", [[["../../x", 1, 1, "0", 0, 1, [], []]], [1], 1, None, "a"])
def test_shards_that_are_no_lists_of_fields_are_refused(shards: Any) -> None:
    with pytest.raises(TrainyardError, match="is not a valid dataset manifest"):
        DatasetManifest.from_json(change(build_manifest(), "splits/train/shards", shards))


@pytest.mark.parametrize(
    "directory", ["/elsewhere/runs/toy/r", "http://host/runs/toy/r", "toy/r", "/a/runs/../..", "r", "", "/", "//"]
)
def test_an_owner_leads_to_no_run_outside_of_its_storage(tmp_path: Path, directory: str) -> None:
    Owner(task_key=build_key(directory), airflow="a").save(str(tmp_path), "trainyard-submission-1")
    with suppress(TrainyardError):
        owner = find_owner(str(tmp_path), "trainyard-submission-1")
        assert owner and owner.task_key.directory == f"{tmp_path}/runs/toy/r"


def test_a_spec_is_of_the_task_where_it_lies(tmp_path: Path) -> None:
    key = build_key("/elsewhere")
    for spec in build_specs(key):
        assert spec.place(f"{tmp_path}/specs/train.json").task_key.directory == str(tmp_path)  # type: ignore[attr-defined]
        with pytest.raises(TrainyardError, match="is a document of task 'train'"):
            spec.place(f"{tmp_path}/specs/other.json")
        assert spec.place(f"{tmp_path}/attempts/train/2.json").task_key.directory == str(tmp_path)  # type: ignore[attr-defined]


def write_huge(file: Path, size: int = 200 << 20) -> None:
    """Write a file of this size, of which almost nothing is on the disk."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as content:
        content.truncate(size)


def test_a_huge_record_costs_its_own_row_and_is_not_read(tmp_path: Path) -> None:
    """One of 200 MB stopped the page of everyone, and took gigabytes of the API server's memory."""
    build_record(str(tmp_path), "good").save()
    write_huge(tmp_path / "records/huge.json")
    unreadable: dict[str, str] = {}
    assert [record.task_key.task for record in run_record.read_run(str(tmp_path), unreadable)] == ["good"]
    assert "records/huge.json has more than 16 MiB" in unreadable["records/huge.json"]
    with pytest.raises(TrainyardError, match="has more than 16 MiB"):
        RunRecord.load(f"{tmp_path}/records/huge.json")


@pytest.mark.parametrize("kind", [Evaluation, Owner, ModelArtifact, GroupProgress, TrainSpec])
def test_each_document_has_a_size_that_is_read_at_most(tmp_path: Path, kind: type[Document]) -> None:
    write_huge(tmp_path / "x.json", kind.MAX_BYTES + 1)
    tracemalloc.start()
    try:
        with pytest.raises(TrainyardError, match=r"x\.json has more than"):
            kind.load(f"{tmp_path}/x.json")
        assert tracemalloc.get_traced_memory()[1] < 3 * kind.MAX_BYTES
    finally:
        tracemalloc.stop()


def test_a_document_that_would_not_be_read_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match="a run record of 17 MiB cannot be stored"):
        build_record(str(tmp_path), advice="a" * (17 << 20)).save()


EVENTS = [
    {"ph": "M", "name": "process_name", "ts": 0, "args": {"name": "train"}},
    {"ph": "M", "name": "thread_name", "ts": 0, "args": {"name": "worker 0"}},
    {"ph": "X", "name": "forward", "ts": 1, "dur": 5, "args": {"step": 1}},
    {"ph": "i", "name": "clock", "ts": 2, "args": {"behind_ms": 1.5, "error_ms": 0.1}},
    {"ph": "C", "name": "epoch", "ts": 3, "args": {"epoch": 1, "loss": 0.5, "accuracy": None}},
    {"ph": "C", "name": "seconds", "ts": 4, "args": {"forward": 0.5}},
]
"""The lines of a process, an event of each kind."""


def test_a_huge_file_of_events_is_not_read(tmp_path: Path) -> None:
    write_huge(tmp_path / "events/train/driver.jsonl")
    lines = "".join(f"{json.dumps(event)}\n" for event in EVENTS)
    storage.replace(str(tmp_path / "events/train/worker 0.jsonl"), lines.encode())
    unreadable: dict[str, str] = {}
    assert len(events.read(str(tmp_path), unreadable)) == len(EVENTS)
    assert unreadable["events"].startswith("1 of 2 files are left out")
    with pytest.raises(TrainyardError, match="has more than 64 MiB"):
        events.read_process(str(tmp_path), "train", "driver")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_events_with_any_other_value_are_shown_or_refused_at_once(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    changed = copy.deepcopy(EVENTS)
    *parents, name = data.draw(st.sampled_from([path for path in list_leaves(changed) if path]))
    target: Any = changed
    for parent in parents:
        target = target[parent]
    target[name] = data.draw(NASTY)
    directory = tmp_path_factory.getbasetemp() / "events-of-others"
    file = directory / "events/train/worker 0.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(event)}\n" for event in changed))
    began = time.process_time()
    found = events.read(str(directory), unreadable={})
    timeline.build_timeline(found)
    timeline.find_clock_offsets(found)
    timeline.sum_phases(found)
    with suppress(ValueError):
        curves.build_charts(curves.read_points(events.read_counters(str(directory), "train", "worker 0", ["epoch"])))
    assert time.process_time() - began < 1


def test_deep_json_is_refused() -> None:
    with pytest.raises(TrainyardError):
        RunRecord.from_json("[" * 1_000_000)


def test_types_refuse_what_the_ends_of_lines_hide() -> None:
    for value in ("shards/w\n", "ab\n"):
        with pytest.raises(TrainyardError):
            DatasetManifest.from_json(change(build_manifest(), "partitions//directory", value))
    assert types.SPLIT_NAME.fullmatch("train") and manifest.fold_name(1) == "fold-1"
