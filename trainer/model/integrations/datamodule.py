"""A dataset for Lightning's own Trainer.

>>> data = TrainyardDataModule("run/digits/dataset", ["image", "label"], batch_size=64)
>>> lightning.Trainer(max_epochs=5).fit(Net(), data)  # training_step gets (image, label)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from lightning import LightningDataModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader

from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import DatasetManifest
from trainyard.trainer.data.dataset import Dataset
from trainyard.trainer.data.loader import Columns

AnyDataset = TypeVar("AnyDataset", bound=Dataset)

TRAINING_OPTIONS = ("transform", "augment", "bucket_by", "balance", "weight_by", "mix")
"""Options of Dataset that apply to the training split only."""


class _TrainingRows(Dataset):
    """The training split, whose epochs are those of a Trainer.

    Rows that it has left out, as with `limit_train_batches`, are no part of the next epoch.
    """

    trainer: Trainer | None = None

    def __iter__(self) -> Iterator[Columns]:
        epoch, step, _ = self._position.load()
        if step and self.trainer:
            loop = self.trainer.fit_loop
            if not (loop.restarting and loop.epoch_loop.batch_progress.current.ready == step):
                self.set_epoch(epoch + 1)
        return super().__iter__()


class TrainyardDataModule(LightningDataModule):
    """The splits "train", "validation" and "test" of a dataset, as far as they exist.

    A checkpoint of the Trainer contains the position in the data, and training resumes there, also within an epoch. A
    dataloader that the Trainer reloads, another fit with the same module, and an epoch after one that the Trainer ended
    early start with the next epoch.

    Args:
        uri: The dataset.
        columns: The columns to read.
        batch_size: The number of rows of a global batch, over all workers of the Trainer.
        seed: The seed of the order.
        batch: A function from the columns to the batch that the module's steps get; a tuple of them by default.
        manifest: The version to read; the newest by default.
        options: Further options of `Dataset`, such as decode and bucket_by. Those that change or select rows apply to
            the training split only.

    Raises:
        TrainyardError: An option is invalid, or the dataset cannot be read.
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
        self._uri, self._manifest = (uri, manifest) if manifest else manifests.find(uri)
        self._columns, self._batch_size, self._seed = tuple(columns), batch_size, seed
        self._batch: Callable[[Any], Any] = batch or (lambda tensors: tuple(tensors[name] for name in self._columns))
        self._train: _TrainingRows | None = None
        self._state: dict[str, Any] = {}

    def train_dataloader(self) -> DataLoader[Any]:
        """Return the batches of the split "train", shuffled, from the position in the data on."""
        state = self.state_dict()
        self._train, self._state = self._build_dataset("train", _TrainingRows), {}
        self._train.trainer = self.trainer
        if state:
            self._train.load_state_dict(state)
        return self._build_dataloader(self._train)

    def val_dataloader(self) -> Any:
        """Return the batches of the split "validation", if it exists."""
        return self._build_evaluation("validation")

    def test_dataloader(self) -> Any:
        """Return the batches of the split "test", if it exists."""
        return self._build_evaluation("test")

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, and the number of the next batch in it."""
        return self._state or (self._train.state_dict() if self._train else {})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Make training resume at `state_dict`."""
        self._state = state_dict

    def _build_evaluation(self, split: str) -> Any:
        if split not in self._manifest.splits:
            return []
        return self._build_dataloader(self._build_dataset(split, Dataset))

    def _build_dataset(self, split: str, kind: type[AnyDataset]) -> AnyDataset:
        trainer, shuffle = self.trainer, kind is _TrainingRows
        rank, world = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        return kind(
            self._uri, split, self._columns, batch_size=self._batch_size, shuffle=shuffle, seed=self._seed,
            rank=rank, world=world, manifest=self._manifest, resume=shuffle,
            **{name: value for name, value in self._options.items() if shuffle or name not in TRAINING_OPTIONS},
        )  # fmt: skip

    def _build_dataloader(self, data: Dataset) -> DataLoader[Any]:
        return DataLoader(data, batch_size=None, collate_fn=self._batch)
