"""What a loop of the user's own reads of a dataset."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from tests.trainer import datasets
from trainyard.files import storage
from trainyard.trainer.loop.fit import fit


def test_validation_reads_a_remote_split_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = {"train": datasets.blobs(100), "validation": datasets.blobs(48, seed=1)}
    local = storage.local_path(datasets.write(tmp_path / "local", splits))
    fsspec.filesystem("memory").put(str(local), str(tmp_path), recursive=True)
    reads: list[str] = []
    read = storage.read_range

    def record(uri: str, begin: int, length: int) -> bytes:
        reads.append(uri)
        return read(uri, begin, length)

    monkeypatch.setattr(storage, "read_range", record)
    monkeypatch.setenv("LOCAL_DIRS", str(tmp_path / "disk"))
    fitted = fit(
        loop="tests.trainer.run.loops:plain", dataset=f"memory://{tmp_path}", model=str(tmp_path / "model"), epochs=3,
        batch_size=50,
    )  # fmt: skip
    assert all("validation_loss" in epoch for epoch in fitted.history.epochs)
    of_validation = [uri for uri in reads if "validation" in uri]
    assert of_validation and len(of_validation) == len(set(of_validation))
