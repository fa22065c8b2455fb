"""A dataset for the Trainer of transformers.

>>> data = Dataset("run/digits/dataset", columns=["image", "labels"], batch_size=64)
>>> TrainyardTrainer(model, TrainingArguments(num_train_epochs=5), train_dataset=data).train()
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import repeat
from typing import Any

from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainyard.trainer.data.dataset import Dataset
from trainyard.trainer.data.loader import Columns


class TrainyardTrainer(Trainer):
    """A Trainer of transformers whose datasets may be a `Dataset`, which it does not shard once more.

    The model gets the columns of a batch as arguments; `transform` of the Dataset renames them. The global batch is
    that of the Dataset, and `per_device_train_batch_size` has no effect. `train(resume_from_checkpoint=...)` resumes
    with the next row, also within an epoch, and on another number of processes; rows before it are not read again.

    A Dataset to evaluate on has `rank=0, world=1, shuffle=False, resume=False`: one process reads it, and sends each
    other one its part, without rows that count twice.
    """

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the batches of this process, from the position in the data on."""
        if not isinstance(self.train_dataset, Dataset):
            return super().get_train_dataloader()
        rows = _TrainingRows(self.train_dataset)
        self.remove_callback(_SetPosition)
        self.add_callback(_SetPosition(rows))
        return DataLoader(rows, batch_size=None)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Return the batches to evaluate on."""
        data: Any = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(data, str) and isinstance(self.eval_dataset, dict):
            data = self.eval_dataset[data]
        return self._prepare(data) if isinstance(data, Dataset) else super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        """Return the batches to predict."""
        is_ours = isinstance(test_dataset, Dataset)
        return self._prepare(test_dataset) if is_ours else super().get_test_dataloader(test_dataset)

    def _prepare(self, data: Dataset) -> DataLoader[Any]:
        return self.accelerator.prepare(DataLoader(data, batch_size=None))  # type: ignore[no-any-return]


class _TrainingRows(IterableDataset[Columns]):
    """The batches of an epoch. A Trainer that resumes drops the first ones, in place of which there are empty ones."""

    def __init__(self, data: Dataset) -> None:
        self._data = data
        self._epoch = self._done = 0

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[Columns]:
        self._data.load_state_dict({"epoch": self._epoch, "step": self._done})
        yield from repeat({}, self._done)
        self._epoch, self._done = self._epoch + 1, 0
        yield from self._data

    def set_position(self, epoch: int, done: int) -> None:
        """Make the next iteration one of `epoch`, of whose batches the first ones are done."""
        self._epoch, self._done = epoch, done


class _SetPosition(TrainerCallback):
    """Set the position in the data to that of the Trainer, as it computes it from the number of updates."""

    def __init__(self, rows: _TrainingRows) -> None:
        self._rows = rows

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        batches = args.gradient_accumulation_steps
        epoch, updates = divmod(state.global_step, math.ceil(len(self._rows) / batches))
        self._rows.set_position(epoch, 0 if args.ignore_data_skip else updates * batches)
