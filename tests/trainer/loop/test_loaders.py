"""A split that a group cannot evaluate is refused before training, and one that fits may be kept on the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC
from torchmetrics.wrappers import ClasswiseWrapper

from tests.trainer import datasets
from tests.trainer.recipes import linear
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.data.loader import Loader
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.loop.loaders import build_loaders, check_resident, has_room
from trainyard.trainer.world import World


def build(folder: Path, rows: int, metrics: Mapping[str, Metric]) -> Loader | None:
    splits = {"train": datasets.blobs(40), "validation": datasets.blobs(rows, seed=1)}
    uri = datasets.write(folder, splits, shards=1)
    recipe, manifest = replace(linear(), metrics=metrics), manifests.read_current(uri)
    return build_loaders(uri, manifest, (), recipe, TrainOptions(batch_size=20), World(0, 4), lambda: None)[1]


@pytest.mark.parametrize("metric", [MulticlassAUROC(3), ClasswiseWrapper(MulticlassAUROC(3, average=None))])
def test_fewer_validation_rows_than_workers_are_refused_for_a_metric_that_stores_rows(
    tmp_path: Path, metric: Metric
) -> None:
    message = r"'validation' has 3 rows, fewer than the 4 workers, .*'auroc'.*at most 3 workers, .* or export more"
    with pytest.raises(TrainyardError, match=message):
        build(tmp_path, 3, {"auroc": metric})


def test_a_metric_that_stores_no_rows_may_have_workers_without_rows(tmp_path: Path) -> None:
    assert build(tmp_path / "accuracy", 3, {"accuracy": MulticlassAccuracy(3)})
    assert build(tmp_path / "thresholds", 3, {"auroc": MulticlassAUROC(3, thresholds=10)})
    assert build(tmp_path / "loss", 3, {})
    assert build(tmp_path / "rows", 4, {"auroc": MulticlassAUROC(3)})


def read(folder: Path) -> SplitReader:
    uri = datasets.write(folder, {"train": datasets.blobs(1 << 15, size=31)})  # 31 x 4 bytes and a label of 8
    return SplitReader(uri, manifests.read_current(uri), "train", ("x", "label"))


@pytest.mark.parametrize(
    ("gpu_cache_gb", "free_bytes", "shares_gpu", "reason"),
    [
        (0.004, 8 << 30, False, "it takes 0.00403 GiB, but gpu_cache_gb=0.004"),
        (1.0, 4 << 20, False, "it takes 0.00403 GiB, but 0.00391 GiB of the GPU are free"),
        (1.0, 8 << 30, True, "workers share it"),
        (1.0, 8 << 30, False, ""),
    ],
)
def test_a_split_is_kept_on_the_gpu_if_it_fits(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    gpu_cache_gb: float,
    free_bytes: int,
    shares_gpu: bool,
    reason: str,
) -> None:
    assert has_room(read(tmp_path), gpu_cache_gb, free_bytes, shares_gpu) == (not reason)
    assert capsys.readouterr().out == (f"split 'train' is not kept on the GPU: {reason}.\n" if reason else "")


def test_a_split_is_not_kept_on_the_gpu_for_a_recipe_that_changes_batches_on_the_cpu(tmp_path: Path) -> None:
    data = read(tmp_path)
    with pytest.raises(TrainyardError, match=r"transform changes them on the CPU\. Remove gpu_cache_gb"):
        check_resident(replace(linear(), transform=lambda columns: columns), data)
    check_resident(linear(), data)


@pytest.mark.parametrize("column", ["tokens", "file"])
def test_rows_of_different_sizes_are_not_kept_on_the_gpu(tmp_path: Path, column: str) -> None:
    files = {"file": [bytes(number) for number in range(40)]}
    uri = datasets.write(tmp_path, {"train": datasets.sequences(40) | files})
    data = SplitReader(uri, manifests.read_current(uri), "train", (column, "label"))
    with pytest.raises(TrainyardError, match=f"those of column '{column}' have different sizes. Remove gpu_cache_gb"):
        check_resident(linear(), data)
