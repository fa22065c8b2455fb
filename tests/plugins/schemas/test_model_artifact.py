"""A model is read with its newest weights, or with those that a task returned."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.evaluations import write_model
from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.schemas import model_artifact


def test_a_version_of_a_model_is_found_by_the_beginning_of_its_weights(tmp_path: Path) -> None:
    uri = str(tmp_path)
    older, newer = write_model(tmp_path, b"old"), write_model(tmp_path, b"new")
    assert model_artifact.find(uri) == (uri, newer)
    for digits in (4, 16, 64):
        assert model_artifact.find(f"{uri}@{older.weights_sha256[:digits]}") == (uri, older)


def test_a_version_that_was_removed_is_an_error_and_not_replaced_by_a_newer_one(tmp_path: Path) -> None:
    older, newer = write_model(tmp_path, b"old"), write_model(tmp_path, b"new")
    storage.remove(str(tmp_path / older.folder))
    with pytest.raises(TrainyardError, match=rf"has no version {older.folder}; it has {newer.folder}\. If it was"):
        model_artifact.find(f"{tmp_path}@{older.folder}")


def test_all_digits_of_a_version_count(tmp_path: Path) -> None:
    digest = write_model(tmp_path, b"w").weights_sha256
    with pytest.raises(TrainyardError, match="has no version"):
        model_artifact.find(f"{tmp_path}@{digest[:-1]}1")


def test_folders_that_are_no_versions_are_not_listed(tmp_path: Path) -> None:
    version = write_model(tmp_path, b"w").folder
    for name in ("evaluations", "0123456789abcdef", ".tmp"):
        (tmp_path / name).mkdir()
    assert model_artifact.list_versions(str(tmp_path)) == [version]
