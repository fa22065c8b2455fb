"""A dataset for those who keep Lightning's own Trainer.

>>> data = TrainyardDataModule("run/digits/dataset", ["image", "label"], batch_size=64)
>>> lightning.Trainer(max_epochs=5).fit(Net(), data)  # training_step gets (image, label)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader

from trainyard.schemas import manifest as manifests
from trainyard.schemas.manifest import DatasetManifest
from trainyard.trainer.data.dataset import Dataset

TRAINING = ("transform", "augment", "bucket_by", "balance", "weight_by", "mix")
"""Options of Dataset that hold for training alone."""


class TrainyardDataModule(LightningDataModule):
    """The splits "train", "validation" and "test" of a dataset, as far as there are.

    `batch_size` counts the rows of all ranks together; each rank of the Trainer gets its share. `batch` makes of
    the columns what the module's steps take: a tuple by default. `options` are others of `Dataset`, such as
    decode and bucket_by; those that change or choose rows hold for training alone. A Trainer's checkpoint holds
    where the data stands. Raises TrainyardError.
    """

    def __init__(
        self,
        uri: str,
        columns: Sequence[str],
        *,
        batch_size: int,
        seed: int = 0,
        batch: Callable[[dict[str, Tensor]], Any] | None = None,
        manifest: DatasetManifest | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._options = options
        self._uri, self._columns, self._batch_size, self._seed = uri, tuple(columns), batch_size, seed
        self._manifest = manifest or manifests.read_current(uri)
        self._batch: Callable[[Any], Any] = batch or (lambda found: tuple(found[name] for name in self._columns))
        self._train: Dataset | None = None
        self._state: dict[str, Any] = {}

    def train_dataloader(self) -> DataLoader[Any]:
        self._train = self._batches("train", shuffle=True)
        if self._state:
            self._train.load_state_dict(self._state)
        return self._loader(self._train)

    def val_dataloader(self) -> Any:
        return self._held_out("validation")

    def test_dataloader(self) -> Any:
        return self._held_out("test")

    def state_dict(self) -> dict[str, Any]:
        """After which batch of which epoch training is."""
        return self._train.state_dict() if self._train else self._state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Training goes on from there."""
        self._state = state_dict

    def _held_out(self, split: str) -> Any:
        return self._loader(self._batches(split, shuffle=False)) if split in self._manifest.splits else []

    def _batches(self, split: str, shuffle: bool) -> Dataset:
        trainer = self.trainer
        rank, world = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        return Dataset(
            self._uri, split, self._columns, batch_size=self._batch_size, shuffle=shuffle, seed=self._seed,
            rank=rank, world=world, manifest=self._manifest,
            **{name: value for name, value in self._options.items() if shuffle or name not in TRAINING},
        )  # fmt: skip

    def _loader(self, data: Dataset) -> DataLoader[Any]:
        return DataLoader(data, batch_size=None, collate_fn=self._batch)
