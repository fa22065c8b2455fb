"""Documents that somebody else has written: they lead to nothing beside the place where they lie."""

from __future__ import annotations

import copy
import json
import time
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
from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas import manifest, model_artifact, run_record, types, versions, worker_progress
from trainyard.schemas.checkpoint import Checkpoint, File
from trainyard.schemas.document import Document
from trainyard.schemas.evaluation import Evaluation, Scores
from trainyard.schemas.failure import Failure
from trainyard.schemas.manifest import DatasetManifest, Partition, Provenance, Shard, Split
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.promotion import Promotion, Rule
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.worker_progress import GroupProgress, WorkerProgress

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


def build_record(directory: str, task: str = "train", **output: Any) -> RunRecord:
    return RunRecord(
        task_key=build_key(directory, task), job="train", application="application_1_0001", started_at=1.0,
        seconds=1.0, status="succeeded", output=output,
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
    ]  # fmt: skip


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
    """`trainyard expire` and `gc --delete` removed it, with everything in it."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("mine")
    dataset = str(tmp_path / "dataset")
    for number in (1, 2, 3):
        text = change(build_manifest(number, f"shards/w{number}"), "partitions//directory", "../precious")
        storage.create(storage.join(dataset, "versions", f"{number:08d}.json"), text.encode())
    with pytest.raises(TrainyardError, match="is not a valid dataset manifest"):
        versions.expire(dataset, keep=1, days=0)
    assert (tmp_path / "precious/file").read_text() == "mine"


@pytest.mark.parametrize("part", ["..", "../x", "a/../../x"])
def test_no_path_leads_out_of_where_it_is_joined_to(part: str) -> None:
    with pytest.raises(TrainyardError, match=r"it has the part '\.\.'"):
        storage.join("file:///data", "a", part)


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
        kind.from_json(json.dumps(changed))
    assert time.process_time() - began < 1


@pytest.mark.parametrize("shards", [[["../../x", 1, 1, "0", 0, 1, [], []]], [1], 1, None, "a"])
def test_shards_that_are_no_lists_of_fields_are_refused(shards: Any) -> None:
    with pytest.raises(TrainyardError, match="is not a valid dataset manifest"):
        DatasetManifest.from_json(change(build_manifest(), "splits/train/shards", shards))


def test_deep_json_is_refused() -> None:
    with pytest.raises(TrainyardError):
        RunRecord.from_json("[" * 1_000_000)


def test_types_refuse_what_the_ends_of_lines_hide() -> None:
    for value in ("shards/w\n", "ab\n"):
        with pytest.raises(TrainyardError):
            DatasetManifest.from_json(change(build_manifest(), "partitions//directory", value))
    assert types.SPLIT_NAME.fullmatch("train") and manifest.fold_name(1) == "fold-1"
