"""A batch dataset for loops that are not ours: an iterable dataset of torch, whole batches at a time.

>>> loader = DataLoader(Batches("run/digits/batches", batch_size=64), batch_size=None)
>>> for batch in loader:  # {"image": Tensor(64, 1, 8, 8), "label": Tensor(64)}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from trainer.dataset import Dataset
from trainer.loader import Columns, Loader
from trainer.order import Order, window_rows
from trainyard.contract import manifest as manifests
from trainyard.contract.errors import TrainyardError
from trainyard.contract.manifest import BatchManifest


class Batches(IterableDataset[Columns]):
    """One rank's share of each global batch of `split`, as a dict of tensors by column.

    `batch_size` is the global batch, whose rows do not depend on `world`, the number of ranks. Every rank has the same
    number of shares: a last batch with fewer rows than ranks is left out. Each iteration is the next epoch, in an
    order of its own; `set_epoch` says which one comes. `state_dict` is where the iteration stands, for
    torchdata's StatefulDataLoader or a loop that keeps it itself. It reads ahead in a thread, so a DataLoader
    needs no worker, or one. Raises TrainyardError.
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
        manifest: BatchManifest | None = None,
    ) -> None:
        manifest = manifest or manifests.current(uri)
        names = tuple(columns) if columns is not None else tuple(c.name for c in manifest.columns if c.kind != "list")
        data = Dataset(uri, manifest, split, names)
        order = Order(data.blocks, min(batch_size, data.rows), seed, window_rows(batch_size, data.row_bytes), shuffle)
        self._loader = Loader(data, order, rank, world, transform)
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
        for share in self._loader.epoch(self._epoch, self._step):
            if share.step == self._steps:
                break
            self._step = share.step + 1
            yield share.columns
        self.set_epoch(self._epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, counted from 0, from its beginning."""
        self._epoch, self._step = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """After which batch of which epoch the iteration is."""
        return {"epoch": self._epoch, "step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._epoch, self._step = state["epoch"], state["step"]
