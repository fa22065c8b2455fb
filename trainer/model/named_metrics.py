"""The metrics of a recipe by the names that evaluations have."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.metrics import REGRESSION

if TYPE_CHECKING:
    from torchmetrics import Metric

_OF_CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "accuracy": ("MulticlassAccuracy", {"average": "micro"}),
    "precision": ("MulticlassPrecision", {"average": "macro"}),
    "recall": ("MulticlassRecall", {"average": "macro"}),
    "f1": ("MulticlassF1Score", {"average": "macro"}),
}


def check_names(names: Sequence[str], classes: int | None, is_binary: bool) -> None:
    """Check that metrics have a name, and the number of classes if they need it.

    Args:
        names: The names.
        classes: The number of classes.
        is_binary: Whether the loss takes one output for each label that is 0 or 1.

    Raises:
        TrainyardError: One has not.
    """
    known = [*_OF_CLASSES, *REGRESSION]
    for name in names:
        if name not in known:
            raise TrainyardError(
                f"Recipe: metrics={list(names)} has {name!r}, which is none of {', '.join(known)}. Write one of them, "
                "or a dict with a metric of torchmetrics by its name, such as {'auroc': MulticlassAUROC(10)}."
            )
        if name in _OF_CLASSES and is_binary:
            raise TrainyardError(
                f"Recipe: metrics={list(names)}: {name!r} takes an output for each class, and the loss one for each "
                "label; write a dict with a metric of torchmetrics by its name, such as {'accuracy': BinaryAccuracy()}."
            )
        if name in _OF_CLASSES and classes is None:
            raise TrainyardError(
                f"Recipe: metrics={list(names)}: {name!r} needs the number of classes; set classes=, or write a dict "
                "with a metric of torchmetrics by its name, such as {'auroc': MulticlassAUROC(10)}."
            )


def build_metrics(
    names: Sequence[str], classes: int | None, ignored: int | None = None, *, is_logarithm: bool = False
) -> dict[str, Metric]:
    """Return metrics of (output, label), by their names.

    Precision, recall and F1 are means over the classes that occur.

    Args:
        names: The names, as `check_names` takes them.
        classes: The number of classes, for outputs (rows, classes).
        ignored: The label whose rows do not count.
        is_logarithm: Whether outputs are logarithms of the numbers that labels are compared with.
    """
    found: dict[str, Metric] = {}
    for name in names:  # the import takes a second, and a node may lack torchmetrics: only where a name asks for it
        if name in _OF_CLASSES:
            kind, options = _OF_CLASSES[name]
            classification = importlib.import_module("torchmetrics.classification")
            found[name] = getattr(classification, kind)(num_classes=classes, ignore_index=ignored, **options)
        else:
            numbers = importlib.import_module("trainyard.trainer.model.number_metrics")
            found[name] = numbers.NumberMetric(name, is_logarithm=is_logarithm)
    return found
