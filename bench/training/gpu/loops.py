"""The loops that are compared: ours, and one of torch calls; and the clock of their steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tests.gpu import stand_ins

stand_ins.install()

from tests.trainer import datasets  # noqa: E402  needs the stand-ins
from trainyard.schemas.datasets import manifest as manifests  # noqa: E402
from trainyard.schemas.datasets.manifest import DatasetManifest, Partition, Split, Statistics  # noqa: E402
from trainyard.schemas.specs.strategies import Allreduce  # noqa: E402
from trainyard.schemas.specs.train import TrainOptions  # noqa: E402
from trainyard.trainer.checkpointing.checkpoints import Checkpoints  # noqa: E402
from trainyard.trainer.data.loader import Loader, LocalBatch, build_order  # noqa: E402
from trainyard.trainer.data.reading.split_reader import SplitReader  # noqa: E402
from trainyard.trainer.data.resident import ResidentLoader  # noqa: E402
from trainyard.trainer.loop.engine import train  # noqa: E402
from trainyard.trainer.loop.training import Training  # noqa: E402
from trainyard.trainer.measuring.phases import Phases  # noqa: E402
from trainyard.trainer.measuring.progress import Progress  # noqa: E402
from trainyard.trainer.model.network import Network  # noqa: E402
from trainyard.trainer.model.recipe import Batch, Recipe  # noqa: E402
from trainyard.trainer.strategies import build_strategy  # noqa: E402
from trainyard.trainer.world import World  # noqa: E402

WARM_STEPS = 10


@dataclass(frozen=True)
class Case:
    """A network and its rows.

    Attributes:
        name: For the output.
        column: The column of its features.
        build: Returns the network.
        loss: A function of the network's output and the batch.
        rows: Some rows, which are stored several times.
        batch: The rows of a batch.
    """

    name: str
    column: str
    build: Callable[[], nn.Module]
    loss: Callable[[Tensor, Batch], Tensor]
    rows: datasets.Columns
    batch: int


def store(folder: Path, case: Case, steps: int) -> SplitReader:
    """Store the rows once, as shards that the manifest names as often as batches are needed."""
    count = len(next(iter(case.rows.values())))
    row_bytes = sum(values[0].nbytes for values in case.rows.values())  # type: ignore[union-attr]
    shard = datasets._shard(folder, "shards/bench/rows.arrow", case.rows, max(1, (4 << 20) // row_bytes))
    repeats = -(-steps * case.batch // count)
    columns = tuple(datasets._column(name, values) for name, values in case.rows.items())
    splits = {
        "train": Split(
            rows=count * repeats, shards=(shard,) * repeats,
            statistics={name: Statistics(count=count * repeats) for name in case.rows},
        )
    }  # fmt: skip
    manifest = DatasetManifest(
        number=1, columns=columns, splits=splits, spark_schema="{}", provenance=datasets.WRITER,
        partitions={
            "": Partition(directory="shards/bench", version=1, rows=count * repeats, provenance=datasets.WRITER)
        },
        content_hash=manifests.content_hash(columns, splits),
    )  # fmt: skip
    manifests.commit(str(folder), manifest)
    return SplitReader(str(folder), manifests.read_current(str(folder)), "train", tuple(case.rows))


class Clock:
    """Times of steps at which the device has computed all former ones."""

    def __init__(self, at: Callable[[int], bool]) -> None:
        self._at = at
        self.times: list[float] = []

    def visit(self, step: int) -> None:
        if self._at(step):
            synchronize()
            self.times.append(time.perf_counter())


class TimedLoader(Loader):
    """Yield the batches of a number of steps, of a loader or always the same, and read the clock before each."""

    def __init__(
        self, data: SplitReader, case: Case, steps: int, clock: Clock, synthetic: LocalBatch | None, resident: bool
    ) -> None:
        order = build_order(data, case.batch, 0, True, None, None)
        super().__init__(data, order, pin=torch.cuda.is_available())
        self._steps, self._clock, self._synthetic = steps, clock, synthetic
        self._loader = ResidentLoader(data, order, 0, 1, World().device) if resident else super()

    def epoch(self, epoch: int, step: int = 0) -> Iterator[LocalBatch]:
        stored = iter(()) if self._synthetic else self._loader.epoch(epoch, step)
        for number in range(self._steps):
            self._clock.visit(number)
            if self._synthetic:
                yield LocalBatch(number, self._synthetic.rows, self._synthetic.total, self._synthetic.columns)
            else:
                yield next(stored)
        self._clock.visit(self._steps)


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def build_optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, 1e-4)


def run_ours(
    data: SplitReader, case: Case, steps: int, clock: Clock, synthetic: LocalBatch | None = None,
    checkpoints: Checkpoints | None = None, checkpoint_steps: int | None = None, resident: bool = False,
) -> Phases:  # fmt: skip
    world, phases = World(), Phases(None)

    def step(model: nn.Module, batch: Batch) -> Tensor:
        return case.loss(model(batch), batch)

    recipe = Recipe(model=case.build(), features=case.column, step=step, optimizer=build_optimizer)
    loader = TimedLoader(data, case, steps, clock, synthetic, resident)
    train(
        Training(
            recipe=recipe, network=Network(recipe.model, (loader.column(case.column),), {}), world=world,
            options=TrainOptions(
                epochs=1, batch_size=case.batch, precision="bfloat16", checkpoint_steps=checkpoint_steps,
                checkpoint_minutes=60,
            ),
            strategy=build_strategy(Allreduce(), world), train=loader, validation=None, phases=phases,
            progress=Progress(1, loader.order, False, phases, ()),
            checkpoints=checkpoints,
        )
    )  # fmt: skip
    return phases


class BareLoop:
    """A loop of torch calls on one batch."""

    def __init__(self, case: Case, columns: Batch) -> None:
        self._device = World().device
        self._case, self._columns = case, columns
        self._model = case.build().to(self._device)
        self._optimizer = build_optimizer(self._model.parameters())

    def step(self, columns: Batch | None = None) -> None:
        columns = columns or self._columns
        features = columns[self._case.column]
        with torch.autocast(self._device.type, dtype=torch.bfloat16):
            x = features.float() if features.dtype == torch.uint8 else features
            loss = self._case.loss(self._model(x), columns)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad()

    def count_operations(self) -> int:
        with FlopCounterMode(display=False) as counter:
            self.step()
        return int(counter.get_total_flops())

    def run(self, steps: int, clock: Clock) -> None:
        for number in range(steps):
            clock.visit(number)
            self.step()
        clock.visit(steps)


def print_ratio(what: str, seconds: dict[str, list[float]], base: str, compared: str, goal: float) -> None:
    """Print how much longer one loop takes than another, as the median over rounds."""
    ratios = [one / other for one, other in zip(seconds[base], seconds[compared], strict=True)]
    print(f"  {what}: {statistics.median(ratios):.3f} (goal {goal}; {min(ratios):.3f} to {max(ratios):.3f})")
