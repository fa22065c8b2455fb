"""Check that a model artifact computes what the trained model does, as another process would load it.

The recipe builds the model once more, with other random numbers and in Python modules that are imported anew, the
tensors are read from the storage, and both models are applied to the same rows in evaluation mode. This happens in the
process of rank 0: see docs/explanation/guarantees.md for what a process of its own would cost.
"""

from __future__ import annotations

import copy
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map_only

from trainyard.errors import TrainyardError, UnavailableError, summarize
from trainyard.files import storage, uris
from trainyard.files.retries import retry
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.model.artifacts.rows import Values, build_batch
from trainyard.trainer.model.artifacts.trained_model import TrainedModel, restore_model, to_array
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.verification.differences import find_cause, find_state, measure_difference
from trainyard.trainer.verification.fresh_state import OTHER_SEED, import_anew, use_random_state

ROWS = 8
TOLERANCE = 1e-4
"""The norm of the difference of two outputs, relative to that of an output, that rounding may cause."""
COARSE_TOLERANCE = 1e-2
"""The same in half precision, on a GPU, and for shards."""
FORWARD_SEED = 1
ADVICE = (
    "What forward uses must be in state_dict(), or be the same in each process: write register_buffer(name, tensor) "
    "without persistent=False, for a number too (torch.tensor(1.0), changed in place), an nn.Parameter with "
    "requires_grad=False, or a torch.Generator with a fixed seed in __init__."
)


@dataclass(frozen=True)
class Output:
    """What the trained model computes for some rows.

    Attributes:
        values: Its output.
        problem: Why it cannot be compared with that of another model; "" if it can.
        is_random: Whether it depends on random numbers, which another program draws otherwise.
    """

    values: Any
    problem: str = ""
    is_random: bool = False


class Prediction(NamedTuple):
    """The prediction of the trained model for some rows.

    Attributes:
        columns: The feature columns, decoded.
        prediction: The columns of the prediction.
    """

    columns: Mapping[str, NDArray[Any]]
    prediction: Mapping[str, NDArray[Any]]


class ModelCheck:
    """Compare the models that are written with the trained one, on a few rows.

    Args:
        path: The import path of the recipe.
        recipe: The recipe.
        network: The network that is trained.
        inputs: The feature columns.
        rows: Some rows of them.
        is_sharded: Whether the network is, so that all workers must apply it together.
        check_output: Raises TrainyardError if the output of the untrained model does not suit its labels.
    """

    def __init__(
        self,
        path: str,
        recipe: Recipe,
        network: Network,
        inputs: Sequence[Column],
        rows: Mapping[str, Values],
        is_sharded: bool,
        check_output: Callable[[Any], None] | None = None,
    ) -> None:
        self._check_output = check_output
        self._path, self._recipe, self._network = path, recipe, network
        self._rows, self._batch, self._is_sharded = rows, build_batch(recipe, inputs, rows), is_sharded

    def check_untrained(self, model: str, write: Callable[[str, Network], ModelArtifact]) -> str | None:
        """Write the model before it is trained, and check what was written, which is removed again.

        Args:
            model: The URI of the model that will be written.
            write: Writes an artifact of a network to a URI.

        Returns:
            Why the models cannot be compared, if they cannot.

        Raises:
            TrainyardError: The model cannot be written, or the written one computes something else.
        """
        try:
            network = copy.deepcopy(self._network)  # applying it may change it
        except Exception as error:
            return f"The model was not compared before the first epoch: it cannot be copied ({summarize(error)})."
        before = {*network.model.state_dict()}
        output = self._apply(network)
        if created := [name for name in network.model.state_dict() if name not in before]:
            raise TrainyardError(
                f"recipe {self._path!r}: forward creates {created[0]!r} in the state of the model. A model "
                "that was just built does not have it, and could not load it (found before the first epoch). Create it "
                "in __init__ with its shape (register_buffer), and assign to it in place."
            )
        if self._check_output and not output.problem:
            self._check_output(output.values)
        folder = uris.join(model, uuid.uuid4().hex[:16])
        try:
            return self._compare(folder, write(folder, self._network), network, output, "found before the first epoch")
        finally:
            retry(f"remove {folder}", partial(storage.remove, folder))

    def apply(self) -> Output:
        """Return the output of the trained model. All workers must call this where it is sharded."""
        return self._apply(self._network, OTHER_SEED)

    def predict(self, output: Output) -> Prediction | None:
        """Return what the recipe's `predict` makes of an output; None if that of another program may differ."""
        if output.problem or output.is_random:
            return None
        with torch.no_grad():
            predicted = self._recipe.predict_columns(output.values)
        columns = {name: column.cpu().numpy() for name, column in self._batch.items()}
        return Prediction(columns, {name: to_array(name, tensor) for name, tensor in predicted.items()})

    def check(self, model: str, artifact: ModelArtifact, output: Output) -> str | None:
        """Check an artifact of the trained model that was written and is not published.

        Args:
            model: The URI of the model.
            artifact: The artifact.
            output: The output of the trained model.

        Returns:
            Why the models cannot be compared, if they cannot.

        Raises:
            TrainyardError: The artifact cannot be loaded, or computes something else.
        """
        end = f"the model was not published; its weights are in {uris.join(model, artifact.folder)}"
        return self._compare(model, artifact, self._network, output, end)

    def _apply(self, network: Network, other_seed: int = FORWARD_SEED) -> Output:
        """Apply a network twice: one that draws numbers of its own, or changes itself, cannot be compared."""
        network.eval()
        device = next((tensor.device for tensor in network.parameters()), torch.device("cpu"))
        batch = {name: column.to(device) for name, column in self._batch.items()}
        try:
            with torch.no_grad():
                values, again = (_apply_seeded(partial(network, batch)) for _ in range(2))
                other = values if other_seed == FORWARD_SEED else _apply_seeded(partial(network, batch), other_seed)
        except TrainyardError:
            raise
        except Exception as error:
            return Output(None, f"its forward raises {summarize(error)} in evaluation mode")
        problem = "it computes something else each time" if measure_difference(values, again) > TOLERANCE else ""
        is_random = measure_difference(values, other) > TOLERANCE
        return Output(tree_map_only(Tensor, Tensor.detach, values), problem, is_random)

    def _compare(self, uri: str, artifact: ModelArtifact, network: Network, output: Output, end: str) -> str | None:
        parameters = [*network.parameters()]
        device = parameters[0].device if parameters else torch.device("cpu")
        half = any(parameter.dtype in (torch.bfloat16, torch.float16) for parameter in parameters)
        tolerance = COARSE_TOLERANCE if half or self._is_sharded or device.type != "cpu" else TOLERANCE
        with ExitStack() as stack:
            stack.enter_context(import_anew(self._path))
            try:
                with use_random_state(OTHER_SEED):
                    loaded = restore_model(uri, artifact, device=device)
                apply = partial(_apply_seeded, partial(loaded.output, self._rows))
                values = None if output.problem else apply()
            except torch.OutOfMemoryError as error:
                return f"The model was not compared with the trained one: {summarize(error)}."
            except UnavailableError:
                raise
            except Exception as error:
                cause = " ".join(str(error).split()) if isinstance(error, TrainyardError) else summarize(error)
                raise TrainyardError(
                    f"recipe {self._path!r}: the model that was written cannot be used: {cause} ({end}). "
                    "The recipe must build the same network each time: create its parameters and buffers in __init__."
                ) from error
            if output.problem:
                return f"The model was loaded, but not compared with the trained one: {output.problem}."
            difference = measure_difference(output.values, values)
            if difference <= tolerance:
                return None
            cause = self._find_cause(network, loaded, apply, tolerance)
            raise TrainyardError(
                f"recipe {self._path!r}: a model that is built anew and loaded does not compute what the trained one "
                f"does: on {len(next(iter(self._batch.values())))} rows its output differs by {difference:.2g} of its "
                f"norm, {tolerance:g} may be rounding ({end}).{cause} {ADVICE}"
            )

    def _find_cause(self, network: Network, loaded: TrainedModel, apply: Callable[[], Any], tolerance: float) -> str:
        def apply_trained() -> Any:
            with torch.no_grad():
                return _apply_seeded(partial(network, batch))

        if self._is_sharded:  # other workers would have to apply it too
            return find_state(network.model, loaded.recipe.model)
        batch = {name: column.to(loaded.device) for name, column in self._batch.items()}
        return " " + find_cause(network.model, loaded.recipe.model, apply_trained, apply, tolerance)


def _apply_seeded(apply: Callable[[], Any], seed: int = FORWARD_SEED) -> Any:
    """Return the result of `apply`, which gets the random numbers of a seed, and leaves those of the process."""
    # What a recipe compiles would be compiled for these rows.
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with use_random_state(seed), eager:
        return apply()
