"""Rows are refused before a job starts, if a model would take them for something else."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from tests.plugins.evaluations import write_model
from trainyard.errors import TrainyardError
from trainyard.etl.scoring.inputs import VOCABULARY, check_inputs
from trainyard.schemas.datasets.fitted_state import FittedReference
from trainyard.schemas.datasets.manifest import Column

STORE, KIND = (Column(name=name, kind="scalar", type="int64") for name in ("store", "kind"))
PLAIN = StructType([StructField("store", LongType()), StructField("kind", LongType())])


@pytest.mark.parametrize("encoded", ["store", "kind"])
def test_a_model_that_was_trained_on_values_does_not_take_their_indices(tmp_path: Path, encoded: str) -> None:
    """A champion from before an export had categories= would have other metrics, and lose against any model."""
    artifact = write_model(tmp_path, b"w").model_copy(update={"inputs": (STORE,)})
    fields = [
        StructField(field.name, LongType(), metadata={VOCABULARY: "c"} if field.name == encoded else {})
        for field in PLAIN.fields
    ]
    check_inputs(PLAIN, artifact, "the rows to evaluate", label=KIND)
    with pytest.raises(
        TrainyardError, match=rf"^the rows to evaluate have indices .* in column '{encoded}', and the m"
    ):
        check_inputs(StructType(fields), artifact, "the rows to evaluate", label=KIND)
    sizes = {"store": 3, "kind": 2}
    fitted = artifact.model_copy(update={"fitted": FittedReference(sha256="0" * 64, labels=("kind",), sizes=sizes)})
    check_inputs(StructType(fields), fitted, "the rows to evaluate", label=KIND)
