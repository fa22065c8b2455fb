"""Export: write a dataset with Spark."""

from __future__ import annotations

from typing import Any

from trainyard.operators.bases.dataset_writer import DatasetOperator


class ExportOperator(DatasetOperator):
    """Read a source with Spark, shape it with the user's `prepare`, and write a dataset.

    Returns (XCom): `uri`, `content_hash`, `version`, `rows`, `splits` and further counts of the dataset.

    An export whose source files, code and options are unchanged is skipped; the log says so. Files that `prepare` reads
    beside its source are not checked: name them in `prepare_params`, or set `force=True`. The options are those of
    `DatasetOperator`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.validate_options()
