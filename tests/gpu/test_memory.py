"""A device whose memory is exhausted: in training an error with the fix, in predictions smaller batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.gpu import recipes
from tests.gpu.recipes import Expanding
from tests.trainer import datasets
from trainyard.diagnosis.diagnose import diagnose
from trainyard.etl.scoring.batch_size import BatchSizeTuner
from trainyard.trainer.connections.clock import Offset
from trainyard.trainer.group.outcome import build_failure
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model

pytestmark = [pytest.mark.full, pytest.mark.slow]

PLAN: Any = SimpleNamespace(job=SimpleNamespace(spec={}))
MIB = 1 << 20


def test_a_training_step_that_does_not_fit_names_the_memory_and_the_fix(
    device: str, batches: str, tmp_path: Path
) -> None:
    """From torch's error to the sentence in the task."""
    with pytest.raises(torch.OutOfMemoryError) as raised:
        fit(f"{recipes.__name__}:hungry", dataset=batches, model=str(tmp_path), epochs=1, batch_size=50)
    outcome = build_failure(0, raised.value, Offset())
    assert outcome.ended == "failed", "another attempt would fail too"
    diagnosis = diagnose(PLAN, outcome.describe_failure(1))
    assert diagnosis and diagnosis.sentence.startswith(
        "A training step did not fit into a GPU's memory: CUDA could not allocate "
    )
    amount = diagnosis.sentence.partition("could not allocate ")[2].partition(" more")[0]
    assert float(amount.split()[0]) > 0 and amount.split()[1] in ("MiB", "GiB", "TiB")
    assert "Write a smaller batch_size, or micro_batches=2" in diagnosis.sentence


def test_training_is_possible_after_memory_was_exhausted(device: str, batches: str, tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        fit(f"{recipes.__name__}:hungry", dataset=batches, model=str(tmp_path / "a"), epochs=1, batch_size=50)
    assert fit(f"{recipes.__name__}:mlp", dataset=batches, model=str(tmp_path / "b"), epochs=1, batch_size=50).metrics


@pytest.fixture
def limited(device: str) -> Iterator[int]:
    """A device with room for a few rows; the largest number of them."""
    Expanding.calls.clear()
    if device == "cpu":
        yield Expanding.max_rows
    else:
        torch.cuda.empty_cache()
        available, Expanding.bytes_per_row = 512 * MIB, 40 * MIB
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + available) / total)
        yield available // Expanding.bytes_per_row
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
    Expanding.max_rows, Expanding.bytes_per_row = 10, 0


def test_predictions_halve_the_batch_until_it_fits(device: str, batches: str, tmp_path: Path, limited: int) -> None:
    Expanding.max_rows, rows = 10_000, limited
    bytes_per_row, Expanding.bytes_per_row = Expanding.bytes_per_row, 0
    fit(f"{recipes.__name__}:expanding", dataset=batches, model=str(tmp_path), epochs=1, batch_size=50)
    model, columns = load_model(str(tmp_path)), {"x": datasets.blobs(100)["x"]}
    expected = model.predict(columns)["prediction"]
    Expanding.max_rows, Expanding.bytes_per_row = rows, bytes_per_row
    Expanding.calls.clear()
    tuner = BatchSizeTuner(64)
    predicted = tuner.apply(model.predict, columns)["prediction"]
    assert predicted == pytest.approx(np.asarray(expected), rel=1e-3, abs=1e-4), "all rows, in their order"
    assert Expanding.calls[0] == 64 and tuner.rows <= rows
    assert [size for size in Expanding.calls if size <= rows] == [8] * 12 + [4]


def test_a_single_row_that_does_not_fit_is_an_error(device: str, batches: str, tmp_path: Path, limited: int) -> None:
    Expanding.max_rows, bytes_per_row, Expanding.bytes_per_row = 10_000, Expanding.bytes_per_row, 0
    fit(f"{recipes.__name__}:expanding", dataset=batches, model=str(tmp_path), epochs=1, batch_size=50)
    model = load_model(str(tmp_path))
    Expanding.max_rows, Expanding.bytes_per_row = 0, 100 * bytes_per_row
    with pytest.raises(torch.OutOfMemoryError):
        BatchSizeTuner(64).apply(model.predict, {"x": datasets.blobs(100)["x"]})
