"""A storage root with runs, datasets and models of chosen ages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.plugins.results import output
from trainyard.files import storage
from trainyard.planning.paths import run_directory
from trainyard.schemas.datasets import manifest
from trainyard.schemas.datasets.manifest import Column, DatasetManifest, Partition, Provenance, Shard, Split
from trainyard.schemas.evaluation import Evaluation, Scores
from trainyard.schemas.model_artifact import ModelArtifact, WeightsFile
from trainyard.schemas.promotion import Promotion, Rule
from trainyard.schemas.runs import checkpoint, script_checkpoint
from trainyard.schemas.runs.checkpoint import Checkpoint
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.runs.script_checkpoint import CheckpointFile, ScriptCheckpoint
from trainyard.schemas.specs.task_key import TaskKey

NOW = 2_000_000_000.0
DAY = 86400.0


def make_old(path: Path, days: float) -> None:
    """Set the modification times of a file, or of all files below a directory."""
    for file in [path, *path.rglob("*")]:
        os.utime(file, (NOW - days * DAY,) * 2)


class Store:
    """Write what Trainyard writes, `days` ago."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder.as_uri()

    def path(self, uri: str) -> Path:
        return Path(uri.removeprefix("file://"))

    def names(self) -> set[str]:
        """Return the paths of all files."""
        return {str(file.relative_to(self.folder)) for file in self.folder.rglob("*") if file.is_file()}

    def run(self, run_id: str, days: float, dag_id: str = "toy", job: str = "script", **fields: Any) -> str:
        """Write a run of one task, whose result has some fields."""
        directory = run_directory(self.root, dag_id, run_id)
        key = TaskKey(dag_id=dag_id, run_id=run_id, task_id="train", directory=directory)
        RunRecord(
            task_key=key, job=job, application="a", started_at=0, seconds=1, status="succeeded",
            output=output(job, **fields),
        ).save()  # fmt: skip
        storage.replace(f"{directory}/events/train/driver.jsonl", b"{}")
        make_old(self.path(directory), days)
        return directory

    def checkpoint(self, run: str, updates: int, days: float, committed: bool = True) -> str:
        uri = checkpoint.checkpoint_uri(f"{run}/checkpoints/train", updates, 1)
        storage.replace(f"{uri}/__0_0.distcp", b"state")
        if committed:
            index = Checkpoint(
                updates=updates, epoch=0, step=0, group=1, world=1, best=False, fingerprint="f", application="a",
                saved_at=0, files={},
            )  # fmt: skip
            checkpoint.commit(uri, index)
        make_old(self.path(uri), days)
        return uri

    def script_checkpoint(self, run: str, number: int, days: float) -> str:
        """Write a checkpoint of a script, whose file has content of its own, which keeps its age."""
        root = f"{run}/checkpoints/train"
        name = script_checkpoint.name_content(1, number, "0" * 64)
        storage.replace(content := script_checkpoint.content_uri(root, name), b"state")
        file = CheckpointFile(bytes=5, sha256="0" * 64, modified_ns=0, content=name)
        index = ScriptCheckpoint(number=number, group=1, workers=1, saved_at=0, files={"last.pt": file})
        uri = script_checkpoint.index_uri(root, number, 1).removesuffix(f"/{checkpoint.INDEX}")
        storage.replace(f"{uri}/{checkpoint.INDEX}", index.to_json().encode())
        for written in (uri, content):
            make_old(self.path(written), days)
        return uri

    def dataset(self, days: Iterable[float], name: str = "toy/dataset", kept: Iterable[str] = ()) -> str:
        """Write a version for each of some ages; each replaces the dataset by one partition, of 4 bytes."""
        uri = f"{self.root}/{name}"
        for number, age in enumerate(days, start=1):
            provenance = Provenance(application="a", written_at="2026-01-01T00:00:00+00:00")
            part = Partition(directory=f"shards/w{number}", version=number, rows=1, provenance=provenance)
            storage.replace(f"{uri}/{part.directory}/train.arrow", b"rows")
            storage.replace(f"{uri}/{part.statistics}", b"{}")
            shard = Shard(f"{part.directory}/train.arrow", 1, 4, "0", 0, 1, [4], [0])
            document = DatasetManifest(
                number=number, columns=(Column(name="x", kind="scalar", type="float"),), spark_schema="{}",
                splits={"train": Split(rows=1, shards=(shard,), statistics={})}, partitions={"": part},
                provenance=provenance, content_hash=str(number),
            )  # fmt: skip
            manifest.commit(uri, document)
            for written in (f"versions/{number:08d}.json", part.directory, part.statistics):
                make_old(self.path(uri) / written, age)
        return uri

    def model(
        self, number: int, days: float, name: str = "toy/model", dataset: str = "", version: int = 1
    ) -> str:  # fmt: skip
        """Write a version of a model, and make it the current one."""
        uri, sha256 = f"{self.root}/{name}", f"{number:016x}".ljust(64, "0")
        artifact = ModelArtifact(
            recipe="toy.recipe:network", recipe_params={}, inputs=(), label=None, normalization={},
            weights=(WeightsFile(path=f"{sha256[:16]}/weights.safetensors", bytes=7, sha256=sha256),),
            weights_sha256=sha256, dataset=dataset or f"{self.root}/elsewhere", dataset_hash="d",
            dataset_version=version, metrics={}, epochs=1, workers=1, seconds=1, device="cpu", application="a",
            written_at="2026-01-01T00:00:00+00:00", versions={},
        )  # fmt: skip
        folder = f"{uri}/{artifact.folder}"
        storage.replace(f"{folder}/weights.safetensors", b"weights")
        for target in (folder, uri):
            storage.replace(f"{target}/model.json", artifact.to_json().encode())
        make_old(self.path(folder), days)
        return folder

    def promotion(self, champion: str, model: str, days: float, dataset: str, version: int) -> str:
        """Write the promotion of a version of a model, and its evaluation; return the URI of the evaluation."""
        parent, _, folder = model.rpartition("/")
        evaluation = Evaluation(
            model=Scores(uri=parent, weights_sha256=folder.ljust(64, "0"), metrics={}, intervals={}), dataset=dataset,
            dataset_hash="d" * 64, dataset_version=version, split="test", rows=1, confidence=0.95, application="a",
        )  # fmt: skip
        evaluation.save()
        promotion = Promotion(
            model=parent, evaluation=evaluation.uri, rule=Rule(metric="accuracy"), why="better", promoted_at="now"
        )
        storage.replace(f"{champion}/promotion.json", promotion.to_json().encode())
        make_old(self.path(model), days)
        make_old(self.path(champion), days)
        return evaluation.uri
