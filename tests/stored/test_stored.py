"""What each release has stored is read by this one, wherever it lies.

docs/how-to/operations/upgrade.md says what is promised. `python -m tests.stored.record` adds a release.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
import torch
from pyarrow import parquet

from trainyard import __version__
from trainyard.schemas.datasets import fitted_state
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.fitted_state import FittedState
from trainyard.schemas.datasets.manifest import DatasetManifest, PartitionStatistics
from trainyard.schemas.document import Document
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.promotion import Promotion
from trainyard.schemas.runs import events
from trainyard.schemas.runs.checkpoint import Checkpoint
from trainyard.schemas.runs.failure import Failure
from trainyard.schemas.runs.input_versions import InputVersions
from trainyard.schemas.runs.owner import Owner
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.runs.worker_progress import GroupProgress
from trainyard.schemas.specs import SPECS
from trainyard.trainer import Dataset, fit, load_model
from trainyard.usage.resource_usage import ResourceUsage

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
RELEASES = sorted(folder.name for folder in FOLDER.iterdir() if folder.name[0].isdigit())
KINDS: dict[str, type[Document]] = {
    kind.KIND: kind
    for kind in (
        *SPECS.values(), Checkpoint, DatasetManifest, Evaluation, Failure, FittedState, GroupProgress, InputVersions,
        ModelArtifact, Owner,
        PartitionStatistics, Promotion, ResourceUsage, RunRecord,
    )
}  # fmt: skip


@pytest.fixture(params=RELEASES)
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a release's storage, and its pipeline as an importable package."""
    monkeypatch.syspath_prepend(str(FOLDER / "dags"))
    shutil.copytree(FOLDER / request.param, tmp_path / "storage")
    return tmp_path / "storage"


def find_run(storage: Path) -> Path:
    [run] = (storage / "runs" / "stored").iterdir()
    return run


def test_every_document_is_read(storage: Path) -> None:
    read = set()
    for file in storage.rglob("*.json"):
        if name := json.loads(file.read_text()).get("document"):
            KINDS[name].from_json(file.read_text(), str(file))
            read.add(KINDS[name])
    assert read >= {DatasetManifest, FittedState, ModelArtifact, Evaluation, Promotion, Checkpoint, RunRecord}


def test_the_rows_of_a_dataset_are_read(storage: Path) -> None:
    uri = str(storage / "stored" / "dataset")
    manifest = manifests.read_current(uri)
    rows = Dataset(uri, split="train", batch_size=64, shuffle=False)
    batches = list(rows)
    assert sum(len(batch["id"]) for batch in batches) == manifest.split("train").rows > 100
    assert {name: tensor.dtype for name, tensor in batches[0].items()}["size"] == torch.float32
    assert set(torch.cat([batch["kind"] for batch in batches]).tolist()) == {0, 1, 2}


def test_what_was_fitted_is_what_its_dataset_refers_to_so_that_partitions_are_added(storage: Path) -> None:
    uri = str(storage / "stored" / "dataset")
    fitted = manifests.read_current(uri).fitted
    assert fitted and fitted_state.read(f"{uri}/{fitted.path}", fitted).reference == fitted


def test_a_model_predicts_what_it_predicted_then(storage: Path) -> None:
    table = parquet.read_table(storage / "stored" / "predictions").to_pydict()
    predicted = dict(zip(table["id"], table["kind"], strict=True))
    with (storage / "stored" / "source" / "flowers.csv").open() as file:
        rows = list(csv.DictReader(file))
    sizes = [[float(row["length"]), float(row["width"])] for row in rows]
    for name in ("model", "champion"):
        model = load_model(str(storage / "stored" / name))
        kinds = model.predict({"size": sizes, "field": [row["field"] or None for row in rows]})["kind"]
        assert {int(row["id"]): kind for row, kind in zip(rows, kinds, strict=True)} == predicted
    assert set(predicted.values()) == {"iris", "rose", "tulip"}


def test_a_training_resumes_from_a_checkpoint(
    storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = find_run(storage) / "checkpoints" / "train"
    newest = max(folder.name for folder in checkpoints.glob("step-*"))
    result = fit(
        "stored.recipe:network", dataset=str(storage / "stored" / "dataset"), model=str(tmp_path / "model"),
        checkpoints=str(checkpoints), epochs=6, batch_size=16, keep_checkpoints=2,
        checkpoint_minutes=0.0001,
    )  # fmt: skip
    assert len(result.history.epochs) == 6
    assert f"/{newest}: epoch " in capsys.readouterr().out


def test_the_events_of_a_run_are_read(storage: Path) -> None:
    names = {event["name"] for event in events.read(str(find_run(storage))) if event["ph"] == "X"}
    assert {"write dataset", "read source"} <= names


def test_each_minor_release_leaves_its_storage() -> None:
    assert __version__.rpartition(".")[0] in {release.rpartition(".")[0] for release in RELEASES}
