"""An export whose source files, code and options have not changed need not run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import datasets
from trainyard import storage
from trainyard.jobs import reuse
from trainyard.schemas import manifest

SPEC: dict[str, Any] = {
    "prepare": "toy.prepare:rows", "prepare_params": {}, "splits": {"train": 1.0}, "partition": None, "task_key": {},
}  # fmt: skip


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
    spec = SPEC | {"source": {"format": "csv", "path": str(source), "options": {}}, "dataset": batches}
    dataset = manifest.read_current(batches)
    provenance = dataset.provenance.model_copy(
        update={"fingerprint": reuse.fingerprint(spec, pipelines / "toy" / "dag.py")}
    )
    partition = dataset.partitions[""].model_copy(update={"provenance": provenance, "version": 2})
    manifest.commit(batches, dataset.model_copy(update={"number": 2, "partitions": {"": partition}}))
    return spec


def judged(spec: dict[str, Any], pipelines: Path, **changes: Any) -> tuple[bool, str]:
    spec = spec | changes
    spec["fingerprint"] = reuse.fingerprint(spec, pipelines / "toy" / "dag.py")
    dataset, why = reuse.find_unchanged(spec)
    return dataset is not None, why


def test_the_same_files_code_and_options_need_no_export(spec: dict[str, Any], pipelines: Path) -> None:
    unchanged, why = judged(spec, pipelines, task_key={"run": 2})
    assert unchanged
    assert why == (
        "source files, code and options are those of version 2, which application test wrote at "
        "2026-01-01T00:00:00+00:00"
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


def test_a_change_of_code_that_prepare_does_not_import_needs_no_export(spec: dict[str, Any], pipelines: Path) -> None:
    (pipelines / "toy" / "recipe.py").write_text("network = 'another'\n")
    os.utime(pipelines / "toy" / "prepare.py", (0, 0))
    assert judged(spec, pipelines)[0]


def test_the_reason_lists_every_change(spec: dict[str, Any], pipelines: Path) -> None:
    (pipelines / "toy" / "words.py").write_text("WORDS = 2\n")
    assert judged(spec, pipelines, splits={"train": 0.5, "test": 0.5}) == (
        False, "the code and the options changed since version 2",
    )  # fmt: skip


def test_a_new_partition_needs_an_export(spec: dict[str, Any], pipelines: Path) -> None:
    assert judged(spec, pipelines, partition="2026-01-01") == (
        False,
        "the dataset has other partitions: an unnamed one",
    )


def test_a_dataset_that_was_written_by_other_means_is_exported_again(
    spec: dict[str, Any], pipelines: Path, tmp_path: Path
) -> None:
    other = datasets.write(tmp_path / "other", {"train": datasets.blobs(10)})
    assert judged(spec, pipelines, dataset=other) == (False, "version 1 has no fingerprint")


def test_a_missing_dataset_needs_an_export(spec: dict[str, Any], pipelines: Path, tmp_path: Path) -> None:
    assert judged(spec, pipelines, dataset=str(tmp_path / "none")) == (False, "there is no dataset yet")


def test_a_source_without_files_always_needs_an_export(spec: dict[str, Any], pipelines: Path) -> None:
    source = {"format": "jdbc", "path": None, "options": {}}
    assert judged(spec, pipelines, source=source) == (
        False, "the source files or the code of prepare cannot be listed",
    )  # fmt: skip
