"""A dataset for your own training loop: an iterable dataset of torch that yields whole batches.

>>> loader = DataLoader(Dataset("run/digits/dataset", batch_size=64), batch_size=None)
>>> for batch in loader:  # {"image": Tensor(64, 1, 8, 8), "label": Tensor(64)}
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset, get_worker_info

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import DatasetManifest
from trainyard.trainer.data.loader import Columns, Loader, build_order
from trainyard.trainer.data.mixture import Portion, build_reader
from trainyard.trainer.data.reading.decoding import Augment, Decode
from trainyard.trainer.data.reading.jagged import Sequences
from trainyard.trainer.data.weights import build_weights
from trainyard.trainer.world import World


class Dataset(IterableDataset[Columns]):
    """One worker's part of each global batch of a split, as a dict of tensors by column.

    Each iteration is the next epoch, in an order of its own. Every worker has the same number of batches: a last batch
    with fewer rows than workers is left out. Rows are read ahead in a thread, so a DataLoader needs at most one worker
    process. `state_dict` and `load_state_dict` save and restore the position, for torchdata's StatefulDataLoader or a
    loop of your own. Its length is that of a whole epoch, also where an iteration resumes in the middle of one.

    With `num_workers=0`, an iteration that was left early is resumed by the next one. With `num_workers=1`, the next
    one is the next epoch, because the worker process reads ahead of the loop. With `resume=False` it always is.

    Args:
        uri: The dataset.
        split: The name of the split.
        columns: The columns that batches have; all by default.
        batch_size: The number of rows of a global batch, over all workers. The rows of a global batch do not depend on
            `world`.
        shuffle: Whether to shuffle rows.
        seed: The seed of the order, and of `augment`.
        rank: The number of this worker. Without `rank` and `world` they are those of torch.distributed, if it is
            initialized, or of the environment variables RANK and WORLD_SIZE, which torchrun sets.
        world: The number of workers.
        transform: A function of the columns of a batch that returns the columns to train on.
        sequences: "padded": variable-length columns are padded with zeros, and have masks (NAME_mask). "nested": they
            are nested tensors.
        bucket_by: A variable-length column; batches then have rows of similar length.
        balance: A column whose values are drawn equally often.
        weight_by: A column of weights; rows are drawn in proportion to them.
        mix: Other datasets that make up a share of the rows of each epoch.
        decode: The decoder of each binary column.
        augment: A random change of decoded rows, by column, or what decodes a random part of them in place of `decode`.
        manifest: The version to read; the newest by default.
        resume: Whether to resume an iteration that was left early. Write False for evaluation, so that each iteration
            starts at the beginning.

    Raises:
        TrainyardError: An option is invalid, or the dataset cannot be read.
    """

    def __init__(
        self,
        uri: str,
        split: str = "train",
        columns: Sequence[str] | None = None,
        *,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        transform: Callable[[Columns], Columns] | None = None,
        sequences: Sequences = "padded",
        bucket_by: str | None = None,
        balance: str | None = None,
        weight_by: str | None = None,
        mix: Sequence[Portion] = (),
        decode: Mapping[str, Decode] = MappingProxyType({}),
        augment: Mapping[str, Augment] = MappingProxyType({}),
        manifest: DatasetManifest | None = None,
        resume: bool = True,
    ) -> None:
        self._follows_group = rank is None and world is None
        rank, world = find_workers() if self._follows_group else (rank or 0, 1 if world is None else world)
        _check_workers(batch_size, rank, world)
        if manifest is None:
            uri, manifest = manifests.find(uri)
        for option, column in {"bucket_by": bucket_by, "balance": balance, "weight_by": weight_by}.items():
            if column and not shuffle:
                raise TrainyardError(f"{option}={column!r} needs shuffle=True, because it changes the order of rows.")
        if balance and weight_by:
            raise TrainyardError(f"balance={balance!r} and weight_by={weight_by!r} exclude each other; remove one.")
        if mix and not shuffle:
            raise TrainyardError("mix= needs shuffle=True, because it changes the order of rows.")
        names = tuple(columns) if columns is not None else tuple(c.name for c in manifest.columns)
        extra = (name for name in (bucket_by, balance, weight_by) if name)
        data = build_reader(uri, manifest, split, tuple(dict.fromkeys((*names, *extra))), mix)
        weights = build_weights(data, balance, weight_by, World())
        order = build_order(data, batch_size, seed, shuffle, bucket_by, weights)
        self._loader = Loader(data, order, rank, world, transform, False, sequences, decode, augment, weights, names)
        self._rank, self._world = rank, world
        self._steps = order.steps - (order.size(order.steps - 1) < world)
        self._resume = resume
        self._position = _Position()

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Columns]:
        self._check_readers()
        return self._iterate()

    def _iterate(self) -> Iterator[Columns]:
        worker = get_worker_info()
        if worker and worker.num_workers > 1:
            raise TrainyardError(
                f"num_workers={worker.num_workers}: each worker of the DataLoader would read every batch. Batches are "
                "read ahead in a thread; write num_workers=0, or 1."
            )
        epoch, step, _ = self._position.load()
        if worker or not self._resume:
            self._position.store(epoch + 1, 0, read_ahead=worker is not None)
        if worker:
            self._position.produced = epoch, step
        for batch in self._loader.epoch(epoch, step):
            if batch.step == self._steps:
                break
            # A loop that counts batches never resumes the generator after the last one, so the epoch ends before it.
            after = divmod(epoch * self._steps + batch.step + 1, self._steps)
            if worker:
                self._position.produced = after
            elif self._resume:
                self._position.store(*after)
            yield batch.columns

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, counted from 0."""
        return self._position.load().epoch

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration start at the beginning of `epoch`, counted from 0."""
        self._check_readers()
        self._position.store(epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch and the number of the next batch in it, with what the order of rows depends on.

        Raises:
            TrainyardError: A worker process of a DataLoader reads the batches, ahead of the loop.
        """
        epoch, step, read_ahead = self._position.load()
        if self._position.produced:  # in the worker process, where a StatefulDataLoader saves it with each batch
            epoch, step = self._position.produced
        elif read_ahead:
            raise TrainyardError(
                "state_dict() of a Dataset whose batches a worker process of the DataLoader reads (num_workers=1): it "
                "reads ahead, so the position of the loop is not known here. Write num_workers=0, or use torchdata's "
                "StatefulDataLoader and its state_dict()."
            )
        return {"epoch": epoch, "step": step, **self._describe_order()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the next iteration resume at `state`.

        Raises:
            TrainyardError: The state is that of a dataset with other rows, another batch_size or another seed.
        """
        for name, value in self._describe_order().items():
            if state.get(name, value) != value:
                raise TrainyardError(
                    f"the state of a Dataset with {name}={state[name]} cannot be loaded into one with {name}={value}: "
                    "rows would be left out, or read twice. Create the Dataset as before."
                )
        step = min(state["step"], self._steps)  # a group of fewer workers may have had one more
        whole, step = divmod(step, self._steps) if self._steps else (0, 0)
        self._position.store(state["epoch"] + whole, step)

    def _check_readers(self) -> None:
        """Check that each row is read by one worker.

        Raises:
            TrainyardError: Another library shards the rows once more, or the process group is another one by now.
        """
        is_whole = self._world == 1 and not self._resume
        if reader := find_second_sharding(may_dispatch=is_whole):
            raise TrainyardError(_SECOND_SHARDING[reader])
        if self._follows_group and not get_worker_info() and (now := find_workers()) != (self._rank, self._world):
            raise TrainyardError(
                f"this Dataset reads the rows of rank {self._rank} of {self._world}, but this process is rank {now[0]} "
                f"of {now[1]} by now. Create the Dataset after torch.distributed.init_process_group, or give it rank= "
                "and world=."
            )

    def _describe_order(self) -> dict[str, int]:
        order = self._loader.order
        return {"rows": order.rows, "batch_size": order.batch, "seed": order.seed}


_SECOND_SHARDING = {
    "accelerate": (
        "Accelerate's prepare() got a loader of a Dataset, and shards it once more: rows would be left out, or read "
        "twice. Give prepare() the model and the optimizer only, iterate over the Dataset itself, which reads the rows "
        "of this process, and save its position with accelerator.register_for_checkpointing(dataset)."
    ),
    "transformers": (
        "transformers.Trainer shards a Dataset once more: rows would be left out, or read twice. Write "
        "trainyard.trainer.TrainyardTrainer instead of Trainer; a Dataset to evaluate on has rank=0, world=1, "
        "shuffle=False, resume=False."
    ),
}
"""What to write instead, by the library that shards rows once more."""


def find_second_sharding(may_dispatch: bool) -> str | None:
    """Return the library whose loader iterates over a dataset, by the callers of this function, if it shards its rows.

    Args:
        may_dispatch: Whether Accelerate may read all rows in one process, and send each other one its part.
    """
    names = [(frame.f_globals.get("__name__"), frame.f_code.co_qualname) for frame, _ in traceback.walk_stack(None)]
    loaders = {name.partition(".")[0] for module, name in names if module == "accelerate.data_loader"}
    allowed = {"SkipDataLoader", *(["DataLoaderDispatcher"] if may_dispatch else [])}
    if loaders <= allowed:
        return None
    return "transformers" if any(module == "transformers.trainer" for module, _ in names) else "accelerate"


def find_workers() -> tuple[int, int]:
    """Return the rank of this process and the number of workers, by torch.distributed or by the variables of torchrun.

    Without either it is the only one.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def _check_workers(batch_size: int, rank: int, world: int) -> None:
    if world < 1:
        raise TrainyardError(f"world={world} is not a number of workers; write 1 or more.")
    if not 0 <= rank < world:
        valid = f"0 to {world - 1}" if world > 1 else "0"
        raise TrainyardError(f"rank={rank} is not a worker of world={world}; write {valid}.")
    if batch_size < world:
        raise TrainyardError(
            f"batch_size={batch_size} is smaller than the number of workers, {world}, and it is the number of rows of "
            f"all of them. Write batch_size={world} or more."
        )


class _Stored(NamedTuple):
    epoch: int
    step: int
    read_ahead: int


class _Position:
    """Where the next iteration starts, in memory that is shared with the worker processes of a DataLoader.

    Each iteration of a DataLoader may have a process of its own, with a copy of the dataset: without shared memory each
    would read the same epoch.

    Attributes:
        produced: In a worker process, the position after the batch that it read last.
    """

    def __init__(self) -> None:
        self._values = torch.zeros(3, dtype=torch.int64)
        self._values.share_memory_()  # type: ignore[no-untyped-call]
        self.produced: tuple[int, int] | None = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._values.share_memory_()  # type: ignore[no-untyped-call]  # a copy has memory of its own

    def load(self) -> _Stored:
        """Return the epoch and the step, and whether a worker process has read ahead since they were set."""
        return _Stored(*self._values.tolist())

    def store(self, epoch: int, step: int, read_ahead: bool = False) -> None:
        """Set where the next iteration starts."""
        self._values.copy_(torch.tensor([epoch, step, read_ahead]))
        self.produced = None
