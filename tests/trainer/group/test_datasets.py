"""A retry of a training reads the versions of the datasets that its checkpoints fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.plugins.evaluations import write_model
from tests.plugins.results import output
from tests.trainer import datasets
from trainyard.files import retries, storage
from trainyard.schemas.datasets import manifest, versions
from trainyard.schemas.datasets.manifest import DatasetManifest
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec
from trainyard.trainer.group import supervisor
from trainyard.trainer.group.datasets import choose_versions


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    return datasets.write(tmp_path / "dataset", {"train": datasets.blobs(8)})


@pytest.fixture
def mixed(tmp_path: Path) -> str:
    return datasets.write(tmp_path / "mixed", {"train": datasets.blobs(8, seed=1)})


def commit_again(*uris: str) -> None:
    for uri in uris:
        current = manifest.read_current(uri)
        manifest.commit(uri, current.model_copy(update={"number": current.number + 1}))


def save_checkpoint(directory: Path) -> None:
    folder = directory / "step-7-group-1"
    folder.mkdir(parents=True)
    (folder / "data").touch()


def read(directory: Path, dataset: str, mixed: str, attempt: int, first: int = 1, **fields: object) -> list[int]:
    """Return the versions that an attempt reads."""
    return [version.number for version in choose(directory, dataset, mixed, attempt, first, **fields)[1]]


def choose(
    directory: Path, dataset: str, mixed: str, attempt: int, first: int = 1, **fields: object
) -> tuple[TrainSpec, list[DatasetManifest]]:
    """Return the spec of an attempt, and what it reads."""
    key = TaskKey(dag_id="d", run_id="r", task_id="t", try_number=attempt, first_try=first, directory="/runs/d/r")
    mix = [{"dataset": mixed, "share": 0.5}]
    options = {"task_key": key, "recipe": "a.b:c", "dataset": dataset, "model": "/m", "mix": mix} | fields
    spec = TrainSpec.model_validate(options)
    chosen, read = choose_versions(spec, str(directory / "checkpoints"))
    assert [uri for uri, _ in read] == [dataset, mixed]
    return chosen, [version for _, version in read]


def test_a_retry_that_finds_checkpoints_reads_the_versions_of_the_attempt_before(
    tmp_path: Path, dataset: str, mixed: str
) -> None:
    commit_again(dataset)
    assert read(tmp_path, dataset, mixed, 1) == [2, 1]
    save_checkpoint(tmp_path / "checkpoints")
    commit_again(dataset, mixed)
    assert read(tmp_path, dataset, mixed, 2) == [2, 1]
    assert read(tmp_path, dataset, mixed, 3) == [2, 1]


def test_a_retry_that_finds_checkpoints_began_with_the_model_that_the_attempt_before_began_with(
    tmp_path: Path, dataset: str, mixed: str
) -> None:
    """Another run may have promoted a champion meanwhile, and its retry names that one."""
    champion = str(tmp_path / "champion")
    first, second = (f"{champion}@{write_model(Path(champion), name, dataset=dataset).folder}" for name in (b"1", b"2"))
    add_partition(dataset)
    named: dict[str, object] = {"start_from": first, "dataset_since": first}
    spec, (manifest, _) = choose(tmp_path, dataset, mixed, 1, **named)
    assert (spec.start_from, spec.dataset_since, list(manifest.partitions)) == (first, first, ["new"])
    promoted: dict[str, object] = {"start_from": second, "dataset_since": second}
    assert choose(tmp_path, dataset, mixed, 2, **promoted)[0].start_from == second, "there are no checkpoints"
    choose(tmp_path, dataset, mixed, 1, **named)
    save_checkpoint(tmp_path / "checkpoints")
    spec, (manifest, _) = choose(tmp_path, dataset, mixed, 2, **promoted)
    assert (spec.start_from, spec.dataset_since, list(manifest.partitions)) == (first, first, ["new"])
    assert choose(tmp_path, dataset, mixed, 2, start_from="/another")[0].start_from == "/another", "the DAG was changed"


def test_a_retry_that_began_without_a_champion_goes_on_without_it(tmp_path: Path, dataset: str, mixed: str) -> None:
    """A champion that was promoted meanwhile would change the rows and the weights, and the checkpoints fit neither."""
    choose(tmp_path, dataset, mixed, 1)
    save_checkpoint(tmp_path / "checkpoints")
    champion = str(tmp_path / "champion")
    pinned = f"{champion}@{write_model(Path(champion), b'1', dataset=dataset).folder}"
    spec, _ = choose(tmp_path, dataset, mixed, 2, start_from=pinned, dataset_since=pinned)
    assert (spec.start_from, spec.dataset_since) == (None, None)


def add_partition(uri: str) -> None:
    """Commit a version whose shards were all added in it, as a partition."""
    current = manifest.read_current(uri)
    (partition,) = current.partitions.values()
    added = {"new": partition.model_copy(update={"version": current.number + 1})}
    manifest.commit(uri, current.model_copy(update={"number": current.number + 1, "partitions": added}))


def test_a_storage_that_fails_at_the_start_of_the_driver_is_asked_again(
    tmp_path: Path, dataset: str, mixed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error of the storage ended the training as an error of the user's code would."""
    monkeypatch.setattr(retries, "MAX_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(supervisor, "supervise", lambda *_: output("train"))
    for name in ("exists", "list_names", "read", "replace"):
        monkeypatch.setattr(storage, name, fail_once(getattr(storage, name)))
    key = TaskKey(dag_id="d", run_id="r", task_id="t", try_number=2, directory=str(tmp_path))
    spec = TrainSpec.model_validate({"task_key": key, "recipe": "a.b:c", "dataset": dataset, "model": "/m"})
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(applicationId="a"))
    assert supervisor.run(spark, spec, EventLog(str(tmp_path), "t", "driver")).to_xcom() == output("train")


def fail_once(function: Callable[..., Any]) -> Callable[..., Any]:
    errors: list[Exception] = [OSError("in failover")]

    def call(*arguments: Any) -> Any:
        if errors:
            raise errors.pop()
        return function(*arguments)

    return call


def test_a_retry_without_checkpoints_reads_the_newest_versions(tmp_path: Path, dataset: str, mixed: str) -> None:
    assert read(tmp_path, dataset, mixed, 1) == [1, 1]
    commit_again(dataset, mixed)
    assert read(tmp_path, dataset, mixed, 2) == [2, 2]


def test_a_task_that_is_cleared_reads_the_newest_versions(tmp_path: Path, dataset: str, mixed: str) -> None:
    assert read(tmp_path, dataset, mixed, 1) == [1, 1]
    save_checkpoint(tmp_path / "checkpoints")
    commit_again(dataset, mixed)
    assert read(tmp_path, dataset, mixed, 3, first=3) == [2, 2]
    commit_again(dataset)
    assert read(tmp_path, dataset, mixed, 4, first=3) == [2, 2], "its retries, those of its first attempt"


def test_a_version_that_the_spec_names_or_that_has_expired_is_not_that_of_the_attempt_before(
    tmp_path: Path, dataset: str, mixed: str
) -> None:
    assert read(tmp_path, dataset, mixed, 1) == [1, 1]
    save_checkpoint(tmp_path / "checkpoints")
    commit_again(dataset, mixed)
    assert read(tmp_path, dataset, mixed, 2, dataset_version=2) == [2, 1]
    commit_again(dataset)
    versions.expire(dataset, keep=1, days=0)
    assert read(tmp_path, dataset, mixed, 2) == [3, 1]
