"""The rows that a task scores at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest

from tests.etl.models import train
from tests.trainer import datasets
from trainyard.etl.evaluation import scorer
from trainyard.etl.evaluation.evaluated_model import EvaluatedModel
from trainyard.etl.evaluation.families import choose_families
from trainyard.etl.evaluation.scorer import Scorer
from trainyard.etl.evaluation.states import read_sums
from trainyard.etl.metrics.sums import merge_sums
from trainyard.etl.scoring import worker_model
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.model.artifacts.trained_model import TrainedModel, load_model

ROWS, CLASSES = 50, 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> EvaluatedModel:
    uri = train(tmp_path_factory.mktemp("model"), "linear", limit=CLASSES)
    artifact = load_model(uri).artifact
    assert artifact.label
    document = artifact.to_json()
    return EvaluatedModel(
        uri,
        document,
        "",
        artifact.label,
        choose_families(uri, document, "", artifact.label, ["accuracy", "log_loss"]),
    )


def score(model: EvaluatedModel, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], dict[str, float]]:
    """Return the numbers of rows that the model was applied to, and the totals of all statistics."""
    applied, apply = list[int](), Scorer._apply_all

    def count(self: Scorer, batch: pa.RecordBatch) -> Any:
        applied.append(batch.num_rows)
        return apply(self, batch)

    monkeypatch.setattr(Scorer, "_apply_all", count)
    rows = datasets.blobs(ROWS)
    batch = pa.RecordBatch.from_pydict({"x": list(rows["x"]), "label": rows["label"]})
    task = Scorer((model,), slices=(), query=None, examples=0, shown_columns=(), rows_per_batch=None)
    (state,) = task.score([batch])
    monkeypatch.undo()
    totals = {key.statistic: sums.sum() for key, (_, sums) in merge_sums([read_sums(state)]).items()}
    return applied, totals


@pytest.mark.parametrize(("outputs", "parts"), [(7 * CLASSES, [7] * 7 + [1]), (1, [1] * ROWS), (1 << 20, [ROWS])])
def test_rows_with_large_outputs_are_scored_a_few_at_a_time(
    model: EvaluatedModel, monkeypatch: pytest.MonkeyPatch, outputs: int, parts: list[int]
) -> None:
    _, expected = score(model, monkeypatch)
    monkeypatch.setattr(scorer, "MAX_OUTPUTS", outputs)
    applied, totals = score(model, monkeypatch)
    assert applied == parts
    assert totals == pytest.approx(expected) and totals["rows"] == ROWS


def test_zeros_of_both_signs_are_in_one_slice(model: EvaluatedModel) -> None:
    rows = datasets.blobs(4)
    of = pa.array([0.0, -0.0, None, 1.5], pa.float32())
    batch = pa.RecordBatch.from_pydict({"x": list(rows["x"]), "label": rows["label"], "of": of})
    task = Scorer((model,), slices=("of",), query=None, examples=0, shown_columns=(), rows_per_batch=None)
    (state,) = task.score([batch])
    assert {key.slice.value for key in merge_sums([read_sums(state)])} == {"", "0", "null", "1.5"}


def test_the_tasks_of_a_process_load_each_of_many_models_once(
    model: EvaluatedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = [copytree(model.uri, tmp_path / f"model-{number}") for number in range(9)]
    models = tuple(replace(model, uri=str(copy)) for copy in copies)
    loaded, restore = list[str](), worker_model.restore_model

    def count(uri: str, artifact: ModelArtifact) -> TrainedModel:
        loaded.append(uri)
        return restore(uri, artifact)

    monkeypatch.setattr(worker_model, "restore_model", count)
    rows = datasets.blobs(ROWS)
    batch = pa.RecordBatch.from_pydict({"x": list(rows["x"]), "label": rows["label"]})
    for _ in range(3):
        task = Scorer(models, slices=(), query=None, examples=0, shown_columns=(), rows_per_batch=None)
        assert len(list(task.score([batch]))) == 1
    assert loaded == [one.uri for one in models]
