"""Choose how to compute metrics of a model, which depends on its recipe and on its output. Workers do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from trainyard.errors import TrainyardError
from trainyard.etl.evaluation.recipe_metric import build_recipe_families
from trainyard.etl.metrics import build_families
from trainyard.etl.metrics.family import Link, MetricFamily, OutputSpec
from trainyard.etl.metrics.rows import RowCount
from trainyard.etl.scoring import arrays, worker_model
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.heads import name_metric, split_metric
from trainyard.trainer.model import loss_kinds
from trainyard.trainer.model.artifacts.trained_model import TrainedModel
from trainyard.trainer.model.heads import Head
from trainyard.trainer.model.recipe import Recipe


def choose_families(
    uri: str, document: str, head: str, label: Column, metrics: Sequence[str], first: tuple[str, str] | None = None
) -> tuple[MetricFamily, ...]:
    """Return the families that compute `metrics` of a head of a model, of which the first counts rows.

    Args:
        uri: The URI of the model.
        document: The JSON of its `ModelArtifact`.
        head: The name of the head; empty for a model without heads.
        label: Its label.
        metrics: The names of metrics, of this head and others; those of the recipe of `first` if there are none.
        first: The URI and the document of the first model, by default this one.

    Raises:
        TrainyardError: The model has no output or label that metrics can compare, or a metric does not apply to it.
    """
    model = worker_model.load_model(uri, document)
    first = first or (uri, document)
    recipe = worker_model.load_model(*first).recipe
    _check_heads(first[0], recipe, metrics)
    if label.kind == "list" or label.name in model.recipe.decode:
        raise TrainyardError(
            f"the label {label.name!r} of {uri} is neither a number nor a tensor, so metrics cannot compare it."
        )
    spec = _build_output_spec(model.recipe.heads_by_name[head], _find_output_shape(uri, model, head), label)
    part = recipe.heads_by_name[head]
    if metrics:
        own = [name for of_head, name in map(split_metric, metrics) if of_head == head]
    elif isinstance(part.metrics, Mapping):
        return RowCount(), *build_recipe_families(*first, head)
    else:  # evaluations have those of a recipe that are named, with intervals
        own = [*part.metrics]
    return RowCount(), *(build_families(own, spec) if own else ())


def _check_heads(uri: str, recipe: Recipe, metrics: Sequence[str]) -> None:
    """Check that metrics are those of heads of a model, and that there are some."""
    if not metrics and not recipe.metrics_by_name:
        some = next((f"{head}/" for head in recipe.heads), "")
        raise TrainyardError(
            f"the recipe of {uri} has no metrics, and metrics= names none; write, for example, "
            f"metrics=['{some}accuracy'] or metrics=['{some}rmse']."
        )
    for name in metrics:
        head, metric = split_metric(name)
        if head not in recipe.heads_by_name:
            names = [name_metric(own, metric) for own in recipe.heads_by_name]
            has = f"the heads {', '.join(recipe.heads)}" if recipe.heads else "no heads"
            raise TrainyardError(f"metrics= has {name!r}, but {uri} has {has}; write {' or '.join(map(repr, names))}.")


def _find_output_shape(uri: str, model: TrainedModel, head: str) -> tuple[int, ...]:
    """Return the shape of one row's output of a head.

    Raises:
        TrainyardError: The output is not a tensor of rows, or its shape depends on the length of the rows.
    """
    what = f"the head {head!r}" if head else "the network"
    rows = arrays.build_samples(model.artifact.inputs)
    outputs = [model.recipe.split_output(model.output(sample))[head] for sample in rows]
    for output in outputs:
        if not isinstance(output, Tensor) or output.shape[:1] != (2,):
            kind = f"tensor of shape {list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            raise TrainyardError(
                f"{what} of {uri} returns a {kind} for 2 rows, which metrics cannot compare with labels; return a "
                "tensor of shape (rows, ...) from its forward, or name its outputs by heads= of the recipe."
            )
    if outputs[0].shape != outputs[-1].shape:
        raise TrainyardError(
            f"{what} of {uri} returns a value for each element of a variable-length row, which metrics cannot "
            "compare with a label of one shape; return as many values for each row from its forward."
        )
    return tuple(outputs[0].shape[1:])


def _build_output_spec(head: Head, output: tuple[int, ...], label: Column) -> OutputSpec:
    """Return what the output is according to the loss of a head: logits, unless NLLLoss, BCELoss or PoissonNLLLoss."""
    classes = head.classes or (2 if loss_kinds.is_any(head.loss, loss_kinds.BINARY) else None)
    link: Link = "sigmoid" if label.shape or output in ((), (1,)) else "softmax"
    if loss_kinds.is_any(head.loss, loss_kinds.NEGATIVE_LOG_LIKELIHOOD):
        link = "exp"
    elif loss_kinds.is_any(head.loss, loss_kinds.BINARY_OF_PROBABILITIES):
        link = "none"
    elif loss_kinds.is_any(head.loss, loss_kinds.POISSON):
        link = "exp" if loss_kinds.takes_logarithms(head.loss) else "none"
    return OutputSpec(output, label.shape, classes, link, loss_kinds.get_ignored_label(head.loss))
