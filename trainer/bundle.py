"""Model bundles: written after training, loaded to evaluate and to predict. Nothing is unpickled."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer import card, decoding, ragged
from trainer import recipe as recipes
from trainer.mixture import Portion
from trainer.network import Network
from trainer.ragged import Ragged
from trainer.recipe import Recipe
from trainyard import __version__
from trainyard.contract import bundle as bundles
from trainyard.contract import storage
from trainyard.contract.bundle import MixedIn, ModelBundle, Normalisation
from trainyard.contract.errors import TrainyardError
from trainyard.contract.manifest import BatchManifest, Column

Given = NDArray[Any] | Tensor | Ragged | Sequence[NDArray[Any]] | Sequence[bytes]
"""One column of some rows."""


class _Reached(Exception):  # noqa: N818 -- no error
    """A forward pass came to the layer that it was to come to."""

    def __init__(self, output: Tensor) -> None:
        self.output = output


def _stop(module: nn.Module, inputs: Any, output: Tensor) -> None:
    raise _Reached(output)


class Model:
    """A trained network, ready to be applied to columns of rows."""

    def __init__(self, bundle: ModelBundle, recipe: Recipe, network: Network) -> None:
        self.bundle = bundle
        self.recipe = recipe
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._network = network.to(self.device).eval()

    @torch.inference_mode()
    def output(self, columns: Mapping[str, Given]) -> Tensor:
        """What the network returns for some rows; input arrays are `(rows, *shape)`.

        Of rows that differ in length a Ragged, or a list of arrays `(length, *shape)`; of bytes to decode a list.
        """
        batch: dict[str, Tensor] = {}
        for column in self.bundle.inputs:
            batch |= self._input(column, columns)
        return self._network({name: tensor.to(self.device) for name, tensor in batch.items()})  # type: ignore[no-any-return]

    @torch.inference_mode()
    def features(self, layer: str, columns: Mapping[str, Given]) -> Tensor:
        """What the submodule `layer` returns for some rows, (rows, elements); what comes after it is not computed."""
        try:
            module = self.recipe.model.get_submodule(layer)
        except AttributeError:
            there = ", ".join(name for name, _ in self.recipe.model.named_modules() if name)
            raise TrainyardError(f"the network has no layer {layer!r}; it has {there}.") from None
        hook = module.register_forward_hook(_stop)
        try:
            self.output(columns)
        except _Reached as reached:
            return reached.output.flatten(1)
        finally:
            hook.remove()
        raise TrainyardError(f"layer {layer!r} is not called when the network is, so it has no output.")

    @torch.inference_mode()
    def predict(self, columns: Mapping[str, Given]) -> dict[str, NDArray[Any]]:
        """The recipe's prediction columns for some rows, as arrays (rows, ...)."""
        return {name: tensor.cpu().numpy() for name, tensor in self.recipe.predict(self.output(columns)).items()}

    def _input(self, column: Column, columns: Mapping[str, Given]) -> dict[str, Tensor]:
        if column.name not in columns:
            raise TrainyardError(
                f"the model takes column {column.name!r} ({column.type}, shape {list(column.shape)}), "
                f"but the rows have {', '.join(columns)}."
            )
        values = columns[column.name]
        if column.name in self.recipe.decode and not isinstance(values, np.ndarray | Tensor):
            values = decoding.decoded(column.name, self.recipe.decode[column.name], values)
        if column.kind == "list":
            rows = values if isinstance(values, Ragged) else Ragged.of([np.asarray(row) for row in values])
            if rows.values.shape[1:] != column.shape:
                raise self._unlike(column, rows.values.shape[1:])
            return ragged.tensors(column.name, rows, self.recipe.sequences)
        if isinstance(values, Ragged):
            raise TrainyardError(
                f"the model takes column {column.name!r} with shape {list(column.shape)}, but its rows hold bytes, or "
                "differ in length."
            )
        tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
        size = 1
        for extent in column.shape:
            size *= extent
        if tensor[:1].numel() not in (size, 0):
            raise self._unlike(column, tuple(tensor.shape[1:]))
        return {column.name: tensor.reshape(-1, *column.shape)}

    def _unlike(self, column: Column, found: tuple[int, ...]) -> TrainyardError:
        of = "elements of " if column.kind == "list" else ""
        return TrainyardError(
            f"the model takes column {column.name!r} with {of}shape {list(column.shape)}, "
            f"but its rows have {of}shape {list(found)}."
        )


def save(
    model: str,
    weights: Mapping[str, Tensor],
    *,
    recipe: str,
    recipe_params: Mapping[str, Any],
    inputs: tuple[Column, ...],
    label: Column | None,
    normalisation: Mapping[str, Normalisation],
    dataset: str,
    manifest: BatchManifest,
    mix: Sequence[Portion],
    metrics: Mapping[str, float],
    epochs: int,
    ranks: int,
    seconds: float,
    device: str,
    application: str,
) -> ModelBundle:
    """Write a bundle to the directory of its weights in `model`; `publish` makes it the current one.

    `weights` are the whole state of the recipe's model, on the CPU.
    """
    data = safetensors.torch.save({name: tensor.detach().contiguous() for name, tensor in weights.items()})
    digest = hashlib.sha256(data).hexdigest()
    bundle = ModelBundle(
        recipe=recipe,
        recipe_params=dict(recipe_params),
        inputs=inputs,
        label=label,
        normalisation=dict(normalisation),
        weights=f"{digest[:16]}/weights.safetensors",
        weights_sha256=digest,
        dataset=dataset,
        dataset_hash=manifest.content_hash,
        dataset_version=manifest.number,
        mix=tuple(
            MixedIn(
                dataset=portion.uri,
                dataset_hash=portion.manifest.content_hash,
                dataset_version=portion.manifest.number,
                share=portion.share,
            )
            for portion in mix
        ),
        metrics=dict(metrics),
        epochs=epochs,
        ranks=ranks,
        seconds=seconds,
        device=device,
        application=application,
        written_at=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={"trainyard": __version__, "torch": torch.__version__, "python": platform.python_version()},
    )
    storage.replace(storage.join(model, bundle.weights), data)
    storage.replace(storage.join(model, digest[:16], "bundle.json"), bundle.to_json().encode())
    storage.replace(storage.join(model, digest[:16], "card.md"), card.markdown(bundle).encode())
    return bundle


def publish(model: str, bundle: ModelBundle) -> None:
    """Make `bundle` the current one at `model`, in one step."""
    storage.replace(storage.join(model, "bundle.json"), bundle.to_json().encode())


def load(model: str, recipe: Recipe | None = None) -> Model:
    """Load the current bundle at `model`; `recipe` stands in for one that cannot be imported here."""
    return restore(model, bundles.current(model), recipe)


def restore(model: str, bundle: ModelBundle, recipe: Recipe | None = None) -> Model:
    """Load one particular `bundle` of `model`."""
    recipe = recipe or recipes.load(bundle.recipe, bundle.recipe_params)
    try:
        recipe.model.load_state_dict(weights(model, bundle))
    except RuntimeError as error:
        raise TrainyardError(
            f"recipe {bundle.recipe!r} builds another network than the one in {model}: {error}. "
            "Use the recipe as it was when the model was trained."
        ) from error
    return Model(bundle, recipe, Network(recipe.model, bundle.inputs, bundle.normalisation))


def weights(model: str, bundle: ModelBundle) -> dict[str, Tensor]:
    """The tensors of a `bundle` of `model`. Raises TrainyardError when they are not those that were written."""
    data = storage.read(storage.join(model, bundle.weights))
    if hashlib.sha256(data).hexdigest() != bundle.weights_sha256:
        raise TrainyardError(f"{model}/{bundle.weights} was altered: its sha256 differs from the bundle's.")
    return safetensors.torch.load(data)  # type: ignore[no-any-return]
