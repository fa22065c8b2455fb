"""Model bundles: written after training, loaded to evaluate and to predict. Nothing is unpickled."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer import card
from trainer import recipe as recipes
from trainer.network import Network
from trainer.recipe import Recipe
from trainyard import __version__
from trainyard.contract import bundle as bundles
from trainyard.contract import storage
from trainyard.contract.bundle import ModelBundle, Normalisation
from trainyard.contract.errors import TrainyardError
from trainyard.contract.manifest import BatchManifest, Column


class Model:
    """A trained network, ready to be applied to columns of rows."""

    def __init__(self, bundle: ModelBundle, recipe: Recipe, network: Network) -> None:
        self.bundle = bundle
        self.recipe = recipe
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._network = network.to(self.device).eval()

    @torch.inference_mode()
    def output(self, columns: Mapping[str, NDArray[Any] | Tensor]) -> Tensor:
        """What the network returns for some rows; input arrays are (rows, *shape)."""
        return self._network({c.name: self._input(c, columns) for c in self.bundle.inputs})  # type: ignore[no-any-return]

    @torch.inference_mode()
    def predict(self, columns: Mapping[str, NDArray[Any] | Tensor]) -> dict[str, NDArray[Any]]:
        """The recipe's prediction columns for some rows, as arrays (rows, ...)."""
        return {name: tensor.cpu().numpy() for name, tensor in self.recipe.predict(self.output(columns)).items()}

    def _input(self, column: Column, columns: Mapping[str, NDArray[Any] | Tensor]) -> Tensor:
        if column.name not in columns:
            raise TrainyardError(
                f"the model takes column {column.name!r} ({column.type}, shape {list(column.shape)}), "
                f"but the rows have {', '.join(columns)}."
            )
        values = columns[column.name]
        tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
        size = 1
        for extent in column.shape:
            size *= extent
        if tensor[:1].numel() not in (size, 0):
            raise TrainyardError(
                f"the model takes column {column.name!r} with shape {list(column.shape)}, "
                f"but its rows have shape {list(tensor.shape[1:])}."
            )
        return tensor.reshape(-1, *column.shape).to(self.device)


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
    metrics: Mapping[str, float],
    epochs: int,
    ranks: int,
    seconds: float,
    device: str,
    application: str,
) -> ModelBundle:
    """Write a bundle to `model`; it becomes the current one in one step, with its weights in place.

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
    storage.replace(storage.join(model, "bundle.json"), bundle.to_json().encode())
    return bundle


def load(model: str, recipe: Recipe | None = None) -> Model:
    """Load the current bundle at `model`; `recipe` stands in for one that cannot be imported here."""
    return restore(model, bundles.current(model), recipe)


def restore(model: str, bundle: ModelBundle, recipe: Recipe | None = None) -> Model:
    """Load one particular `bundle` of `model`."""
    recipe = recipe or recipes.load(bundle.recipe, bundle.recipe_params)
    data = storage.read(storage.join(model, bundle.weights))
    if hashlib.sha256(data).hexdigest() != bundle.weights_sha256:
        raise TrainyardError(f"{model}/{bundle.weights} was altered: its sha256 differs from the bundle's.")
    try:
        recipe.model.load_state_dict(safetensors.torch.load(data))
    except RuntimeError as error:
        raise TrainyardError(
            f"recipe {bundle.recipe!r} builds another network than the one in {model}: {error}. "
            "Use the recipe as it was when the model was trained."
        ) from error
    return Model(bundle, recipe, Network(recipe.model, bundle.inputs, bundle.normalisation))
