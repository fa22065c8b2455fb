"""A split that a group cannot evaluate is refused before training."""

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
from trainyard.schemas import manifest as manifests
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.data.loader import Loader
from trainyard.trainer.loop.loaders import build_loaders
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
