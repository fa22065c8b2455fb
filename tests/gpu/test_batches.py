"""Batches on their way to the device: pinned, copied without waiting, and never overwritten meanwhile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.gpu import recipes
from tests.trainer import datasets
from trainyard.schemas.datasets import manifest as manifests
from trainyard.trainer.data.loader import Columns, Loader, build_order
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.loop.evaluation import to_device
from trainyard.trainer.loop.fit import fit

pytestmark = [pytest.mark.full, pytest.mark.slow]

ROWS, BATCH, WIDTH = 12_800, 64, 256
CYCLES = 20_000_000
"""Some 12 ms, in which a GPU copies nothing that was launched after them."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rows of 1 kB, all of whose elements are the number of the row."""
    x = np.repeat(np.arange(ROWS, dtype=np.float32)[:, None], WIDTH, axis=1)
    folder = tmp_path_factory.mktemp("wide") / "dataset"
    return datasets.write(folder, {"train": {"x": x, "label": np.arange(ROWS)}}, rows_per_batch=256)


def build_loader(uri: str, pin: bool) -> Loader:
    reader = SplitReader(uri, manifests.read_current(uri), "train", ("x", "label"))
    return Loader(reader, build_order(reader, BATCH, 0, True, None, None), pin=pin)


def are_whole(batches: list[Columns]) -> bool:
    """Return whether each batch has the rows that its labels name."""
    return all(bool((batch["x"] == batch["label"][:, None]).all()) for batch in batches)


def test_a_batch_in_flight_is_not_overwritten_by_later_ones(device: str, wide: str) -> None:
    """Each copy is launched behind a kernel, and the buffer of the host dropped before it begins."""
    is_gpu = device == "cuda"
    batches, in_flight = [], 0
    for batch in build_loader(wide, is_gpu).epoch(0):
        if is_gpu:
            assert batch.columns["x"].is_pinned()
            torch.cuda._sleep(CYCLES)
        batches.append(to_device(batch.columns, torch.device(device)))
        del batch
        in_flight += is_gpu and not torch.cuda.current_stream().query()
    assert in_flight >= (len(batches) / 2 if is_gpu else 0)
    assert len(batches) == ROWS // BATCH and are_whole(batches)
    labels = torch.cat([batch["label"] for batch in batches])
    assert labels.unique().numel() == ROWS


@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_a_buffer_that_is_filled_again_while_in_flight_is_noticed(device: str, wide: str) -> None:
    """What the test before would see, if buffers were reused too early."""
    buffer, batches, labels = torch.empty(BATCH, WIDTH).pin_memory(), [], []
    for batch in build_loader(wide, False).epoch(0):
        buffer.copy_(batch.columns["x"])
        torch.cuda._sleep(CYCLES)
        batches.append(to_device({"x": buffer}, torch.device(device)))
        labels.append(batch.columns["label"].clone())
    for columns, label in zip(batches, labels, strict=True):
        columns["label"] = label.to(device)
    assert not are_whole(batches)


def test_copies_do_not_wait_for_the_device(device: str, wide: str) -> None:
    columns = next(iter(build_loader(wide, device == "cuda").epoch(0))).columns
    to_device(columns, torch.device(device))  # allocates memory
    if device == "cuda":
        torch.cuda._sleep(10 * CYCLES)
    moved: dict[str, Tensor] = to_device(columns, torch.device(device))
    if device == "cuda":
        assert not torch.cuda.current_stream().query()
    assert {tensor.device.type for tensor in moved.values()} == {device} and are_whole([moved])


@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_batches_from_gpu_memory_train_as_those_from_the_disk(
    device: str, wide: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows in the same order, with the same losses; and no column is copied to the device in a step."""
    copied: list[str] = []

    def train(name: str, gpu_cache_gb: float) -> list[float]:
        fitted = fit(
            f"{recipes.__name__}:numbers", dataset=wide, model=str(tmp_path / name), epochs=2, batch_size=BATCH,
            gpu_cache_gb=gpu_cache_gb,
        )  # fmt: skip
        return [epoch["loss"] for epoch in fitted.history.epochs]

    def note_device(columns: Columns, target: torch.device) -> Columns:
        copied.extend(column.device.type for column in columns.values())
        return to_device(columns, target)

    expected = train("disk", 0)
    monkeypatch.setattr("trainyard.trainer.loop.step.to_device", note_device)
    assert train("memory", 1) == pytest.approx(expected, rel=1e-6)
    assert set(copied) == {"cuda"} and len(copied) == 2 * 2 * (ROWS // BATCH)


@pytest.mark.parametrize("sequences", ["padded", "nested"])
def test_variable_length_columns_reach_the_device(device: str, tmp_path: Path, sequences: str) -> None:
    uri = datasets.write(tmp_path / "dataset", {"train": datasets.sequences(400), "validation": datasets.sequences(90)})
    fitted = fit(
        f"{recipes.__name__}:embedded", dataset=uri, model=str(tmp_path / "model"), epochs=4, batch_size=40,
        recipe_params={"sequences": sequences},
    )  # fmt: skip
    first, *_, last = (epoch["validation_loss"] for epoch in fitted.history.epochs)
    assert last < first and fitted.artifact and fitted.artifact.device == device
