"""Load a model artifact, and apply it to rows. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from trainyard.errors import TrainyardError
from trainyard.schemas import model_artifact as artifacts
from trainyard.schemas.datasets.fitted_state import FittedState, Vocabulary
from trainyard.schemas.heads import name_column
from trainyard.schemas.model_artifact import Ensemble, ModelArtifact
from trainyard.trainer.data.reading.jagged import Jagged
from trainyard.trainer.model import recipe as recipes
from trainyard.trainer.model.artifacts import weights
from trainyard.trainer.model.artifacts.rows import DecodedRows, Values, build_batch
from trainyard.trainer.model.ensemble import EnsembleNetwork, check_members
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Recipe

PREDICTION = "return a dict of tensors of shape (rows, ...) by column, such as {'class': output.argmax(1)}"
"""What a recipe's predict function must do, for errors."""

CLASS = "class"
"""The column of a prediction that has the number of a class, beside one that is named as the label."""
_WIDER_TYPES = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.uint8: torch.int16,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
}


class TrainedModel:
    """A trained model, by default on the GPU if there is one.

    Its methods compute without gradients. A forward pass that needs some, of its inputs, computes them in
    `torch.enable_grad()`.

    Attributes:
        artifact: What is stored of the model.
        recipe: The recipe, whose `model` has the trained weights.
        device: The device of the model.
        uri: The URI of the model.
        network: The module that takes a batch of the columns, by name.
        members: The models of an ensemble. Each encodes and decodes rows by its own recipe.
    """

    def __init__(
        self,
        artifact: ModelArtifact,
        recipe: Recipe,
        network: nn.Module,
        device: torch.device | None = None,
        uri: str = "",
        members: Sequence[TrainedModel] = (),
    ) -> None:
        self.artifact = artifact
        self.uri = uri
        self.recipe = recipe
        self.members = tuple(members)
        self.device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.network = network.to(self.device).eval()

    @cached_property
    def fitted(self) -> FittedState:
        """What the dataset was fitted by: the values of categories, the classes, and what `fit` returned."""
        return self.artifact.read_fitted(self.uri)

    def encode(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Return rows with indices in place of the values of categories, as the model takes them.

        Args:
            columns: The columns as `prepare` returns them, each a sequence of values.
        """
        vocabularies = self.fitted.vocabularies
        return {
            name: _encode(name, values, vocabularies[name]) if name in vocabularies else values
            for name, values in columns.items()
        }

    @torch.no_grad()
    def output(self, columns: Mapping[str, Values], decoded: DecodedRows | None = None) -> Any:
        """Return the output of the model for some rows: of a recipe with heads, a dict of their outputs.

        Args:
            columns: The feature columns: arrays (rows, ...); for a variable-length column a Jagged or a list of
                arrays (length, ...); for a binary column a list, or an array of objects, of bytes. Numbers may have any
                type, and become those of the column. Texts of a column of categories become its indices; `encode` does
                that with its integers and booleans, too.
            decoded: What other models have decoded of these rows, by column and decoder; this one adds what it decodes.

        Raises:
            TrainyardError: A column is missing, has another shape than in training, other rows than another column, or
                a number that its type cannot represent.
        """
        texts = {name: values for name, values in columns.items() if self._has_texts(name, values)}
        columns = {**columns, **self.encode(texts)} if texts else columns
        if isinstance(self.network, EnsembleNetwork):
            shared = {} if decoded is None else decoded
            return self.network.combine([member.output(columns, shared) for member in self.members])
        batch = build_batch(self.recipe, self.artifact.inputs, columns, decoded)
        output = self.network({name: tensor.to(self.device) for name, tensor in batch.items()})
        return tree_map_only(Tensor, Tensor.detach, output)

    @torch.no_grad()
    def features(self, layer: str, columns: Mapping[str, Values]) -> Tensor:
        """Return the output of a layer for some rows, flattened to (rows, elements).

        Args:
            layer: The name of a submodule of the recipe's model. If it is called several times, the first call counts.
            columns: The feature columns, as for `output`.

        Raises:
            TrainyardError: The model has no such layer or does not call it, or the layer returns no tensor of rows.
        """
        try:
            module = self.recipe.model.get_submodule(layer)
        except AttributeError:
            names = ", ".join(name for name, _ in self.recipe.model.named_modules() if name)
            raise TrainyardError(f"the model has no layer {layer!r}; its layers are {names}.") from None
        outputs: list[Tensor] = []

        def store_output(module: nn.Module, inputs: Any, output: Any) -> None:
            if outputs:
                return
            if not isinstance(output, Tensor) or output.dim() == 0:
                raise TrainyardError(
                    f"layer {layer!r} ({type(module).__name__}) returns a {type(output).__name__}, and not a tensor of "
                    "rows; name a layer that returns one."
                )
            rows = output[:, None] if output.dim() == 1 else output.flatten(1)
            outputs.append(rows.detach().clone())  # later layers may change it in place

        hook = module.register_forward_hook(store_output)
        try:
            self.output(columns)
        finally:
            hook.remove()
        if not outputs:
            raise TrainyardError(f"layer {layer!r} has no output: the model does not call it.")
        return outputs[0]

    def _has_texts(self, name: str, values: Any) -> bool:
        """Return whether a column of categories has values of strings, or nulls among them."""
        reference = self.artifact.fitted
        if reference is None or name not in reference.sizes or isinstance(values, Tensor | Jagged):
            return False
        return _has_texts(values)

    def name_classes(self, predicted: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return columns of a prediction with the names of classes in place of their numbers.

        Columns of integers are numbers of classes if the recipe, or a head, names them as its label or `class`, and the
        label has names.

        Raises:
            TrainyardError: A number is that of no class.
        """
        named = dict(predicted)
        for head, label in self.artifact.labels.items():
            if self.artifact.fitted is None or label.name not in self.artifact.fitted.labels:
                continue
            classes = self.fitted.vocabularies[label.name]
            for column in dict.fromkeys(name_column(head, name) for name in (label.name, CLASS)):
                if column in predicted:
                    named[column] = _name(column, predicted[column], classes)
        return named

    @torch.no_grad()
    def predict(self, columns: Mapping[str, Values], names: bool = True) -> dict[str, NDArray[Any]]:
        """Return the columns of the recipe's prediction for some rows, as arrays (rows, ...).

        Those of the head `kind` of a recipe with heads are named `kind_class` and the like.

        Args:
            columns: The feature columns, as for `output`.
            names: Whether predicted classes are their names, if the label has names: see `name_classes`.

        Raises:
            TrainyardError: See `output`; or the recipe's `predict` does not return tensors by column, or one of them is
                complex or uint64.
        """
        predicted = self.recipe.predict_columns(self.output(columns))
        check_prediction(predicted, self.artifact.recipe)
        numbers = {name: to_array(name, tensor) for name, tensor in predicted.items()}
        return self.name_classes(numbers) if names else numbers


def load_model(model: str, recipe: Recipe | None = None) -> TrainedModel:
    """Load a model.

    Args:
        model: The URI of the model; `MODEL@1a2b` is the version whose weights have a sha256 that begins so.
        recipe: The recipe, if that of the artifact cannot be imported here.

    Raises:
        TrainyardError: There is no model, or the recipe builds a different network.
    """
    return restore_model(*artifacts.find(model), recipe)


def restore_model(
    model: str, artifact: ModelArtifact, recipe: Recipe | None = None, device: torch.device | None = None
) -> TrainedModel:
    """Load one particular `artifact` of `model`, by default to the GPU if there is one; see `load_model`."""
    if artifact.ensemble:
        return _restore_ensemble(model, artifact, artifact.ensemble, device)
    recipe = recipe or recipes.load(artifact.recipe, artifact.recipe_params)
    try:
        weights.load_into(recipe.model, model, artifact)
    except RuntimeError as error:
        raise TrainyardError(
            f"recipe {artifact.recipe!r} builds a different network than the one in {model}: {error}. "
            "Use the recipe as it was when the model was trained."
        ) from error
    network = Network(recipe.model, artifact.inputs, artifact.normalization, recipe.keywords, recipe.heads)
    return TrainedModel(artifact, recipe, network, device, model)


def _restore_ensemble(
    model: str, artifact: ModelArtifact, ensemble: Ensemble, device: torch.device | None
) -> TrainedModel:
    """Load the members of an ensemble; its recipe is that of the first one, with the network of all."""
    names = [member.uri for member in ensemble.members]
    members = [
        restore_model(artifacts.member_uri(model, artifact, number), member.artifact, device=device)
        for number, member in enumerate(ensemble.members)
    ]
    recipes_of_members = [member.recipe for member in members]
    check_members(recipes_of_members, ensemble.by, names)
    first = recipes_of_members[0]
    network = EnsembleNetwork(
        [member.network for member in members], first.heads_by_name, ensemble.by,
        [member.weight for member in ensemble.members], names,
    )  # fmt: skip
    decode = {name: decoder for one in reversed(recipes_of_members) for name, decoder in one.decode.items()}
    features = [column.name for column in artifact.inputs]
    masks = list(dict.fromkeys(name for one in recipes_of_members for name in one.stored_masks))
    recipe = replace(first, model=network, features=features, decode=decode, stored_masks=masks)
    return TrainedModel(artifact, recipe, network, device, model, members)


def _has_texts(values: Any) -> bool:
    """Return whether there are strings or nulls among the values of rows, or among the elements of their arrays."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return bool(values.dtype.kind == "U")
    nested = (list, tuple, np.ndarray)
    return any(isinstance(v, str) or v is None or (isinstance(v, nested) and _has_texts(v)) for v in values)


def _encode(name: str, values: Any, vocabulary: Vocabulary) -> Any:
    """Return the indices of the values of a column."""
    if not vocabulary.is_list:
        return np.array(vocabulary.encode(name, values), np.int64)
    for number, row in enumerate(values):
        if not isinstance(row, list | tuple | np.ndarray):
            raise TrainyardError(
                f"column {name!r} has {row!r:.50} in row {number}; pass a list of values, which may be empty."
            )
    return [np.array(vocabulary.encode(name, row), np.int64) for row in values]


def check_prediction(predicted: Any, recipe: str) -> None:
    """Check that the predict function of the recipe at the path `recipe` returned tensors by column.

    Raises:
        TrainyardError: It returned something else.
    """
    if not isinstance(predicted, Mapping):
        raise TrainyardError(f"predict of the recipe {recipe!r} returns a {type(predicted).__name__}; {PREDICTION}.")
    for name, value in predicted.items():
        if not isinstance(value, Tensor):
            raise TrainyardError(
                f"predict of the recipe {recipe!r} returns a {type(value).__name__} in {name!r}; {PREDICTION}."
            )


def to_array(name: str, tensor: Tensor) -> NDArray[Any]:
    """Return a column of predictions as numbers of a type that Spark has: half precision and unsigned ones are wider.

    Raises:
        TrainyardError: There is no such type.
    """
    if tensor.is_complex():
        raise TrainyardError(
            f"the recipe's predict returned column {name!r} with complex numbers; return two columns, such as "
            "output.real and output.imag."
        )
    if tensor.dtype == torch.uint64:
        raise TrainyardError(
            f"the recipe's predict returned column {name!r} with numbers of type uint64, which Spark does not have; "
            "convert them with .to(torch.int64)."
        )
    return tensor.detach().cpu().to(_WIDER_TYPES.get(tensor.dtype, tensor.dtype)).numpy()


def _name(column: str, numbers: NDArray[Any], classes: Vocabulary) -> NDArray[Any]:
    """Return the names of classes, as objects, of integers of any shape; other numbers stay."""
    if numbers.dtype.kind not in "iu":
        return numbers
    wrong = (numbers < 0) | (numbers >= len(classes.values))
    if wrong.any():
        raise TrainyardError(
            f"predict of the recipe returns {numbers[wrong].flat[0]} in {column!r}, and there are "
            f"{len(classes.values)} classes, from 0 on. Return the number of a class, or name the column otherwise."
        )
    names: NDArray[Any] = np.array(classes.values, object)
    return names[numbers]  # type: ignore[no-any-return]
