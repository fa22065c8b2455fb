"""A model is read with its newest weights, or with those that a task returned."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.evaluations import write_model
from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas import model_artifact


def test_weights_that_are_no_longer_the_newest_can_be_read(tmp_path: Path) -> None:
    uri = str(tmp_path)
    older, newer = write_model(tmp_path, b"old"), write_model(tmp_path, b"new")
    assert model_artifact.read(uri, {}) == model_artifact.read(uri, {"another": "c" * 64}) == newer
    assert model_artifact.read(uri, {uri: older.weights_sha256}) == older


def test_weights_that_were_removed_are_an_error_and_not_replaced_by_newer_ones(tmp_path: Path) -> None:
    older, _ = write_model(tmp_path, b"old"), write_model(tmp_path, b"new")
    storage.remove(str(tmp_path / older.folder))
    with pytest.raises(
        TrainyardError, match=f"with the weights {older.folder}, the result of another task, was removed"
    ):
        model_artifact.read(str(tmp_path), {str(tmp_path): older.weights_sha256})
