"""Write and read the tensors of a model, in files of limited size, one of which is in memory at a time.

The layout is that of Hugging Face: `weights.safetensors`, or `weights-00001-of-00003.safetensors` and so on, with
`weights.safetensors.index.json`. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from trainyard.errors import TrainyardError
from trainyard.files import uris
from trainyard.files.retries import read_file, replace_file
from trainyard.schemas.model_artifact import ModelArtifact, WeightsFile

FILE_BYTES = 1 << 30


@dataclass(frozen=True)
class WrittenWeights:
    """The files of a model's tensors, for its artifact; see `ModelArtifact`."""

    files: tuple[WeightsFile, ...]
    sha256: str
    aliases: dict[str, str]


def write(
    model: str, module: nn.Module, is_main: bool = True, on_progress: Callable[[], None] = lambda: None
) -> WrittenWeights | None:
    """Write the state of `module` to the folder of `model` that is named by its content.

    Of a sharded module one tensor at a time is gathered. The name of the folder must be known before the first file is
    written, so that each of several files is built twice.

    Args:
        model: The URI of the model.
        module: The module. All workers must call this where it is sharded.
        is_main: Whether this is the worker that writes. The others get None.
        on_progress: Called after each file.
    """
    tensors = {k: v for k, v in module.state_dict(keep_vars=True).items() if isinstance(v, Tensor)}
    aliases = find_aliases(tensors)
    own = {name: tensor for name, tensor in tensors.items() if name not in aliases}
    plan = plan_files({name: tensor.nbytes for name, tensor in own.items()}, FILE_BYTES)

    def build(keys: list[str]) -> bytes:
        part = {key: tensor for key, tensor in ((key, _gather(own[key])) for key in keys) if is_main}
        on_progress()
        return safetensors.torch.save(_separate(part), {"format": "pt"}) if is_main else b""

    # Building is a collective: all workers must do it as often, also those whose result is empty.
    only = build(plan[0]) if len(plan) == 1 else None
    digests = [hashlib.sha256(build(keys) if only is None else only).hexdigest() for keys in plan]
    digest = hashlib.sha256("".join(digests).encode()).hexdigest() if only is None else digests[0]
    folder = uris.join(model, digest[:16])
    files = []
    for number, keys in enumerate(plan, start=1):
        data = build(keys) if only is None else only
        name = f"weights-{number:05d}-of-{len(plan):05d}.safetensors" if len(plan) > 1 else "weights.safetensors"
        if is_main:
            replace_file(uris.join(folder, name), data)
        files.append(WeightsFile(path=f"{digest[:16]}/{name}", bytes=len(data), sha256=digests[number - 1]))
    if not is_main:
        return None
    if len(plan) > 1:
        weight_map = {k: file.path.rpartition("/")[2] for file, keys in zip(files, plan, strict=True) for k in keys}
        index = {"metadata": {"total_size": sum(t.nbytes for t in own.values())}, "weight_map": weight_map}
        replace_file(uris.join(folder, "weights.safetensors.index.json"), json.dumps(index, indent=1).encode())
    return WrittenWeights(tuple(files), digest, aliases)


def find_aliases(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the names of tensors that occur again, as tied weights do, each with the name of the first one."""
    first: dict[int, str] = {}
    return {name: other for name, tensor in tensors.items() if (other := first.setdefault(id(tensor), name)) != name}


def find_overlap(module: nn.Module) -> tuple[str, str] | None:
    """Return the names of two parameters of which an element has the same memory, None if there are none."""
    counts: dict[int, Tensor] = {}
    owners: dict[int, str] = {}
    named = [(name, parameter) for name, parameter in module.named_parameters() if not is_lazy(parameter)]
    storages = [parameter.untyped_storage().data_ptr() for _, parameter in named]
    uses = Counter(storages)
    for (name, parameter), address in zip(named, storages, strict=True):
        if uses[address] == 1 or not address:
            continue
        if address not in counts:
            elements = parameter.untyped_storage().nbytes() // parameter.itemsize
            counts[address], owners[address] = torch.zeros(elements, dtype=torch.uint8), name
        own = counts[address].as_strided(parameter.shape, parameter.stride(), parameter.storage_offset())
        own += 1
        if own.max() > 1:
            return owners[address], name
    return None


def plan_files(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Return the names of the tensors in each file, in order: as many as fit into `limit` bytes, and at least one."""
    files: list[list[str]] = [[]]
    size = 0
    for name, length in sizes.items():
        if files[-1] and size + length > limit:
            files.append([])
            size = 0
        files[-1].append(name)
        size += length
    return files


def read_files(model: str, artifact: ModelArtifact) -> Iterator[dict[str, Tensor]]:
    """Yield the tensors of each file of an `artifact` of `model`, without aliases.

    Raises:
        TrainyardError: The checksum of a file differs from the artifact's.
    """
    for file in artifact.weights:
        data = read_file(uris.join(model, file.path))
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise TrainyardError(f"{model}/{file.path} was altered: its sha256 differs from the one in model.json.")
        yield safetensors.torch.load(data)


def read(model: str, artifact: ModelArtifact) -> dict[str, Tensor]:
    """Return all tensors of an `artifact` of `model`, with aliases. Raises TrainyardError as `read_files`."""
    tensors = {name: tensor for part in read_files(model, artifact) for name, tensor in part.items()}
    return tensors | {name: tensors[other] for name, other in artifact.aliases.items()}


def load_into(module: nn.Module, model: str, artifact: ModelArtifact) -> None:
    """Load the tensors of an `artifact` of `model` into `module`, file by file.

    Raises:
        RuntimeError: The names or shapes of its tensors differ.
        TrainyardError: As `read_files`.
    """
    missing = {name for name, value in module.state_dict().items() if isinstance(value, Tensor)}
    unexpected: list[str] = []
    for tensors in read_files(model, artifact):
        tied = {name: tensors[other] for name, other in artifact.aliases.items() if other in tensors}
        unexpected += module.load_state_dict(tensors | tied, strict=False).unexpected_keys
        missing -= {*tensors, *tied}
    if missing or unexpected:
        raise RuntimeError(f"missing are {sorted(missing)}, unexpected are {sorted(unexpected)}")


def _gather(tensor: Tensor) -> Tensor:
    own = tensor.detach()
    gather = getattr(own, "full_tensor", None)  # of a DTensor, whose module takes seconds to import
    return (gather() if gather else own).cpu()


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return contiguous tensors, with a copy of those that share memory with another one."""
    storages: set[int] = set()
    separate = {}
    for name, tensor in tensors.items():
        address = tensor.untyped_storage().data_ptr()
        shares = address in storages
        separate[name] = tensor.clone(memory_format=torch.contiguous_format) if shares else tensor.contiguous()
        storages.add(address)
    return separate
