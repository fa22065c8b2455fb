"""A dataset for loops that are not ours: an iterable dataset of torch, whole batches at a time.

>>> loader = DataLoader(Dataset("run/digits/dataset", batch_size=64), batch_size=None)
>>> for batch in loader:  # {"image": Tensor(64, 1, 8, 8), "label": Tensor(64)}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from trainyard.errors import TrainyardError
from trainyard.schemas import manifest as manifests
from trainyard.schemas.manifest import DatasetManifest
from trainyard.trainer.data.decoding import Augment, Decode
from trainyard.trainer.data.jagged import Sequences
from trainyard.trainer.data.loader import Columns, Loader, arranged
from trainyard.trainer.data.mixture import Portion, mixed
from trainyard.trainer.data.weights import chosen
from trainyard.trainer.world import World


class Dataset(IterableDataset[Columns]):
    """One rank's share of each global batch of `split`, as a dict of tensors by column.

    `batch_size` is the global batch, whose rows do not depend on `world`, the number of ranks. Every rank has the
    same number of shares: a last batch with fewer rows than ranks is left out. Each iteration is the next epoch, in
    an order of its own; `set_epoch` says which one comes. `state_dict` is where the iteration stands, for
    torchdata's StatefulDataLoader or a loop that keeps it itself. It reads ahead in a thread, so a DataLoader needs
    no worker, or one. Columns whose rows differ in length are padded, with their masks, or nested (`sequences`,
    `decode` and `augment` as in a Recipe); with `bucket_by`, one of them, batches hold rows of about one length.
    `balance` names a column whose values are drawn equally often, `weight_by` one of weights. With `mix` an epoch has
    rows of other datasets too, in the shares that their Portions say. Raises TrainyardError.
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
        rank: int = 0,
        world: int = 1,
        transform: Callable[[Columns], Columns] | None = None,
        sequences: Sequences = "padded",
        bucket_by: str | None = None,
        balance: str | None = None,
        weight_by: str | None = None,
        mix: Sequence[Portion] = (),
        decode: Mapping[str, Decode] = MappingProxyType({}),
        augment: Mapping[str, Augment] = MappingProxyType({}),
        manifest: DatasetManifest | None = None,
    ) -> None:
        manifest = manifest or manifests.read_current(uri)
        for option, column in {"bucket_by": bucket_by, "balance": balance, "weight_by": weight_by}.items():
            if column and not shuffle:
                raise TrainyardError(f"{option}={column!r} orders rows, and shuffle=False leaves them as they lie.")
        if balance and weight_by:
            raise TrainyardError(f"balance={balance!r} and weight_by={weight_by!r} exclude each other.")
        if mix and not shuffle:
            raise TrainyardError("mix draws rows, and shuffle=False leaves them as they lie.")
        names = tuple(columns) if columns is not None else tuple(c.name for c in manifest.columns)
        also = (name for name in (bucket_by, balance, weight_by) if name)
        data = mixed(uri, manifest, split, tuple(dict.fromkeys((*names, *also))), mix)
        weights = chosen(data, balance, weight_by, World())
        order = arranged(data, batch_size, seed, shuffle, bucket_by, weights)
        self._loader = Loader(data, order, rank, world, transform, False, sequences, decode, augment, weights)
        self._steps = order.steps - (order.size(order.steps - 1) < world)
        self._epoch, self._step = 0, 0

    def __len__(self) -> int:
        return self._steps - self._step

    def __iter__(self) -> Iterator[Columns]:
        worker = get_worker_info()
        if worker and worker.num_workers > 1:
            raise TrainyardError(
                f"num_workers={worker.num_workers}: each worker of the DataLoader would read every batch. Batches are "
                "read ahead in a thread; write num_workers=0, or 1."
            )
        epoch = self._epoch
        for share in self._loader.epoch(epoch, self._step):
            if share.step == self._steps:
                break
            # Whoever knows how many batches there are asks for no more after the last, and never comes back here.
            self._epoch, self._step = divmod(epoch * self._steps + share.step + 1, self._steps)
            yield share.columns

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, counted from 0, from its beginning."""
        self._epoch, self._step = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """After which batch of which epoch the iteration is."""
        return {"epoch": self._epoch, "step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._epoch, self._step = state["epoch"], state["step"]
