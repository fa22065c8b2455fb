"""A model in a Spark Python worker: loaded once, fed with Arrow batches."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainer import bundle
from trainer.bundle import Model
from trainyard.contract.bundle import ModelBundle
from trainyard.contract.errors import TrainyardError
from trainyard.contract.manifest import Column


@lru_cache(maxsize=1)
def model(uri: str, document: str) -> Model:
    """The model of the bundle `document` at `uri`, as loaded first in this process.

    Spark runs a worker for each core, so torch has one thread here.
    """
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    return bundle.restore(uri, ModelBundle.from_json(document, origin=uri))


def check_inputs(names: list[str], found: ModelBundle, where: str, also: tuple[str, ...] = ()) -> None:
    """Raises TrainyardError when a column that the model takes, or one of `also`, is missing."""
    for column in (*(c.name for c in found.inputs), *also):
        if column not in names:
            raise TrainyardError(f"{where} has no column {column!r}; it has {', '.join(names)}.")


def array(batch: pa.RecordBatch, column: Column) -> NDArray[Any]:
    """One column of a Spark Arrow batch as (rows, *shape). Raises TrainyardError when the shape differs."""
    values = batch.column(column.name)
    rows = len(values)
    while pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        values = values.flatten()
    flat = values.to_numpy(zero_copy_only=False)
    if flat.size != rows * int(np.prod(column.shape)):
        raise TrainyardError(
            f"column {column.name!r} has {flat.size / max(rows, 1):g} elements in a row; the model takes shape "
            f"{list(column.shape)}."
        )
    return flat.reshape(rows, *column.shape)  # type: ignore[no-any-return]
