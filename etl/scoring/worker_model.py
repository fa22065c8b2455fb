"""Load a model once in each Spark Python worker."""

from __future__ import annotations

from functools import lru_cache

from pyspark import TaskContext

from trainyard.etl.scoring.batch_size import Pace
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.model.trained_model import TrainedModel, restore_model


@lru_cache(maxsize=8)
def model(uri: str, document: str) -> TrainedModel:
    """The model of the bundle `document` at `uri`, as loaded first in this process.

    Spark runs a worker for each slot, so torch has the cores, and the GPU, of one task here.
    """
    import torch

    context = TaskContext.get()
    torch.set_num_threads(context.cpus() if context else 1)
    gpus = context.resources().get("gpu") if context else None
    if gpus and int(gpus.addresses[0]) < torch.cuda.device_count():
        torch.cuda.set_device(int(gpus.addresses[0]))
    return restore_model(uri, ModelArtifact.from_json(document, origin=uri))


@lru_cache(maxsize=8)
def pace(uri: str, document: str, rows: int | None) -> Pace:
    """The pace of that model in this process."""
    return Pace(rows)
