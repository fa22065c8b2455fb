"""What a loop changes while it trains, by name: networks, optimizers, schedules, and whatever else has a state_dict.

A state is split: its tensors are written by all workers, as those of a recipe are, and the rest of it, with a number in
place of each tensor, is part of the small state of rank 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from trainyard.errors import TrainyardError
from trainyard.trainer.checkpointing.checkpoints import SavedCheckpoint
from trainyard.trainer.run.replicas import compute_digests
from trainyard.trainer.world import World

PREFIX = "tracked"
_TENSOR = "\0tensor"


@runtime_checkable
class Stateful(Protocol):
    """What can be saved: torch's networks, optimizers and schedules, for example."""

    def state_dict(self) -> Any:
        """Return the state, of tensors, numbers and strings in dicts and lists."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Restore the state."""


def check_stateful(objects: Mapping[str, Any]) -> None:
    """Check that the state of each object can be saved. Raises TrainyardError if one has none."""
    for name, value in objects.items():
        if not isinstance(value, Stateful):
            raise TrainyardError(
                f"track({name}=...): a {type(value).__name__} has no state_dict() and load_state_dict(), so that it "
                "cannot be saved. Keep the value in an object that has both, such as a buffer of a network."
            )


def read_states(objects: Mapping[str, Stateful]) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Return the tensors of some objects, and the rest of their states, by the names of the objects."""
    tensors: dict[str, dict[str, Tensor]] = {name: {} for name in objects}
    return tensors, {name: _split(value.state_dict(), tensors[name]) for name, value in objects.items()}


def check_equal(objects: Mapping[str, Stateful], tensors: Mapping[str, Mapping[str, Tensor]], world: World) -> None:
    """Check that all workers have the same tensors of each object that is no network and no optimizer.

    Args:
        objects: The objects.
        tensors: The tensors of each, by its name.
        world: The workers. All of them must call this.

    Raises:
        TrainyardError: An object has other tensors on another worker.
    """
    names = [name for name, value in objects.items() if not isinstance(value, nn.Module | Optimizer) and tensors[name]]
    if world.size == 1 or not names:
        return
    for name in names:
        if any(isinstance(tensor, DTensor) for tensor in tensors[name].values()):
            raise TrainyardError(
                f"track({name}=...): the {type(objects[name]).__name__} has shards of parameters, which only networks "
                "and optimizers may have. Keep copies of weights in a network of run.model() or run.prepare()."
            )
    own = [
        [str([list(tensor.shape) for tensor in tensors[name].values()]), *compute_digests(tensors[name].values())]
        for name in names
    ]
    by_rank = world.gather(own)
    for rank, described in enumerate(by_rank):
        for name, of_main, of_rank in zip(names, by_rank[0], described, strict=True):
            if of_main != of_rank:
                raise TrainyardError(
                    f"track({name}=...): the tensors of the {type(objects[name]).__name__} of rank {rank} are not "
                    "those of rank 0, and a checkpoint has one state for all workers, of any number. Keep in it what "
                    "all workers have in common, such as what batch.backward returns."
                )


def restore(objects: Mapping[str, Stateful], saved: SavedCheckpoint, states: Mapping[str, Any]) -> None:
    """Restore objects in place.

    Args:
        objects: The objects.
        saved: A checkpoint, which has their tensors.
        states: The rest of their states.

    Raises:
        TrainyardError: The checkpoint has the states of other objects, or of others of their kind.
    """
    if objects.keys() != states.keys():
        differing = [f"{name!r} is new" for name in objects if name not in states]
        differing += [f"{name!r} is missing" for name in states if name not in objects]
        raise TrainyardError(
            f"track(): {', '.join(differing)}, compared with the checkpoint {saved.uri}. Track the same objects as "
            f"before, or remove the folder {saved.uri.rpartition('/')[0]} to start from the beginning."
        )
    for name, value in objects.items():
        likes = dict(_find_shards(value, states[name]))
        state = _join(states[name], saved.read_tensors(f"{PREFIX}.{name}", likes))
        try:
            value.load_state_dict(state)
        except (RuntimeError, ValueError, KeyError) as error:
            raise TrainyardError(
                f"track({name}=...): the state in the checkpoint {saved.uri} is that of another "
                f"{type(value).__name__}: {error}. Build it as before, or remove the folder "
                f"{saved.uri.rpartition('/')[0]} to start from the beginning."
            ) from error


def _split(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return a state with a number in place of each of its tensors, which are added to `tensors`."""
    if isinstance(value, Tensor):
        number = str(len(tensors))
        tensors[number] = value.detach()
        return {_TENSOR: number}
    if isinstance(value, Mapping):
        return {key: _split(part, tensors) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_split(part, tensors) for part in value)
    return value


def _find_shards(value: Stateful, state: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the numbers of tensors in a saved state, with tensors of an object that are sharded as they are to be.

    Args:
        value: A network, of which it is the same tensor, or an optimizer, of which it is the parameter.
        state: The saved state, as `_split` returns it.
    """
    if isinstance(value, nn.Module):
        tensors: dict[Any, Tensor] = value.state_dict()
        saved: dict[Any, list[Any]] = {name: [part] for name, part in state.items()}
    elif isinstance(value, Optimizer):
        parameters = (parameter for group in value.param_groups for parameter in group["params"])
        tensors = dict(enumerate(parameters))
        saved = {int(number): list(parts.values()) for number, parts in state["state"].items()}
    else:
        return
    for name, parts in saved.items():
        for part in parts:
            if isinstance(part, dict) and _TENSOR in part and name in tensors:
                yield part[_TENSOR], tensors[name]


def _join(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return tensors[value[_TENSOR]]
        return {key: _join(part, tensors) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_join(part, tensors) for part in value)
    return value
