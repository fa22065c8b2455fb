"""Load a model once in each Spark Python worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from pyspark import TaskContext

from trainyard.errors import TrainyardError
from trainyard.etl.scoring.batch_size import BatchSizeTuner
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.model.artifacts.trained_model import TrainedModel, restore_model


@lru_cache(maxsize=8)
def load_model(uri: str, document: str) -> TrainedModel:
    """Return the model at `uri`, loaded by the first call in this process.

    Spark starts a worker for each slot, so torch uses the cores of one task, and the GPU that Spark assigned to it.
    Where Spark counts no GPUs (node labels, whole nodes, local masters), tasks take turns by their number.

    Args:
        uri: The URI of the model.
        document: The JSON of its `ModelArtifact`, read on the driver so that all tasks apply the same weights.
    """
    import torch

    from trainyard.trainer.world import select_gpu

    context = TaskContext.get()
    torch.set_num_threads(context.cpus() if context else 1)
    if context and (visible := torch.cuda.device_count()):
        gpus = context.resources().get("gpu")
        torch.cuda.set_device(select_gpu(gpus.addresses if gpus else (), context.partitionId(), visible))
    return restore_model(uri, ModelArtifact.from_json(document, origin=uri))


@lru_cache(maxsize=1)
def load_models(models: tuple[tuple[str, str], ...]) -> dict[tuple[str, str], TrainedModel]:
    """Return models that are applied together, each a URI and a document, loaded by the first call in this process.

    They may be more than `load_model` keeps: all models of the newest call stay loaded.
    """
    return {model: load_model(*model) for model in models}


@lru_cache(maxsize=8)
def get_tuner(models: tuple[tuple[str, str], ...], rows: int | None) -> BatchSizeTuner:
    """Return the batch size tuner of models that are applied together, each a URI and a document, in this process.

    `rows` fixes the size.
    """
    return BatchSizeTuner(rows)


@contextmanager
def name_in_errors(uri: str) -> Iterator[None]:
    """Name the model at `uri` in an error of its code: one of several models may fail."""
    try:
        yield
    except TrainyardError as error:
        if uri in str(error):
            raise
        raise TrainyardError(f"the model {uri}: {error}") from None
    except Exception as error:
        error.add_note(f"It is an error of the model {uri}.")
        raise
