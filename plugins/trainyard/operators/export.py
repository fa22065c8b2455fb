"""Export: Spark reads a source, the user's `prepare` shapes it, the result is a dataset."""

from __future__ import annotations

from typing import Any

from trainyard.operators.dataset_writer import DatasetOperator


class ExportOperator(DatasetOperator):
    """Writes a dataset. Returns its `uri`, `content_hash`, rows and the like.

    Nothing runs when the dataset is there already, written from the same source files by the same code and options; the
    log says so. What `prepare` reads beside its source is not seen: name it in `prepare_params`, or write `force=True`.
    Options are those of DatasetOperator.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.validate_options()
