"""Choose how to compute metrics of a model, which depends on its recipe and on its output. Workers do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from torch.nn import functional

from trainyard.errors import TrainyardError
from trainyard.etl.evaluation.recipe_metric import build_recipe_families
from trainyard.etl.metrics import build_families
from trainyard.etl.metrics.family import Link, MetricFamily, OutputSpec
from trainyard.etl.metrics.rows import RowCount
from trainyard.etl.scoring import arrays, worker_model
from trainyard.schemas.manifest import Column
from trainyard.trainer.model import loss_kinds
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.model.trained_model import TrainedModel

_POISSON: loss_kinds.Losses = (nn.PoissonNLLLoss, functional.poisson_nll_loss)


def choose_families(
    uri: str, document: str, label: Column, metrics: Sequence[str], first: tuple[str, str] | None = None
) -> tuple[MetricFamily, ...]:
    """Return the families that compute `metrics` of a model, of which the first counts rows.

    Args:
        uri: The URI of the model.
        document: The JSON of its `ModelArtifact`.
        label: Its label.
        metrics: The names of metrics; those of the recipe of `first` if there are none.
        first: The URI and the document of the first model, by default this one.

    Raises:
        TrainyardError: The model has no output or label that metrics can compare, or a metric does not apply to it.
    """
    model = worker_model.load_model(uri, document)
    if label.kind == "list" or label.name in model.recipe.decode:
        raise TrainyardError(
            f"the label {label.name!r} of {uri} is neither a number nor a tensor, so metrics cannot compare it."
        )
    spec = _build_output_spec(model.recipe, _find_output_shape(uri, model), label)
    first = first or (uri, document)
    chosen = metrics or _list_names(worker_model.load_model(*first).recipe)
    return RowCount(), *(build_families(chosen, spec) if chosen else build_recipe_families(*first))


def _list_names(recipe: Recipe) -> Sequence[str]:
    """Return the metrics that a recipe has by name alone; evaluations have the same ones, with intervals."""
    return () if isinstance(recipe.metrics, Mapping) else recipe.metrics


def _find_output_shape(uri: str, model: TrainedModel) -> tuple[int, ...]:
    """Return the shape of one row's output.

    Raises:
        TrainyardError: The output is not a tensor of rows, or its shape depends on the length of the rows.
    """
    outputs = [model.output(rows) for rows in arrays.build_samples(model.artifact.inputs)]
    for output in outputs:
        if not isinstance(output, Tensor) or output.shape[:1] != (2,):
            kind = f"tensor of shape {list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            raise TrainyardError(
                f"the network of {uri} returns a {kind} for 2 rows, which metrics cannot compare with labels; return a "
                "tensor of shape (rows, ...) from its forward."
            )
    if outputs[0].shape != outputs[-1].shape:
        raise TrainyardError(
            f"the network of {uri} returns a value for each element of a variable-length row, which metrics cannot "
            "compare with a label of one shape; return as many values for each row from its forward."
        )
    return tuple(outputs[0].shape[1:])


def _build_output_spec(recipe: Recipe, output: tuple[int, ...], label: Column) -> OutputSpec:
    """Return what the output is according to the recipe's loss: logits, unless NLLLoss, BCELoss or PoissonNLLLoss."""
    classes = recipe.classes or (2 if loss_kinds.is_any(recipe.loss, loss_kinds.BINARY) else None)
    link: Link = "sigmoid" if label.shape or output in ((), (1,)) else "softmax"
    if loss_kinds.is_any(recipe.loss, loss_kinds.NEGATIVE_LOG_LIKELIHOOD):
        link = "exp"
    elif loss_kinds.is_any(recipe.loss, loss_kinds.BINARY_OF_PROBABILITIES):
        link = "none"
    elif loss_kinds.is_any(recipe.loss, _POISSON):
        link = "exp" if loss_kinds.get_option(recipe.loss, "log_input", True) else "none"
    return OutputSpec(output, label.shape, classes, link, loss_kinds.get_ignored_label(recipe.loss))
