"""Measure a GPU node: what the input pipeline, the training loop and checkpoints cost of the device's time.

    PYTHONPATH=plugins:. python -m bench.training.gpu [--device cpu] [--small] [--rounds 3]

A ResNet-50 and a transformer of 125 M parameters, in bfloat16, on one device. In each round:

    bare       forward, backward and optimizer of the network, on one batch that is on the device; a loop of torch calls
    synthetic  our loop on such a batch
    stored     our loop on a dataset, in shuffled batches that are pinned and copied

Each run is timed from its tenth step to its last one, synchronized at both. The ratio of "synthetic" to "stored" shows
how far the input pipeline keeps the device busy, that of "bare" to "synthetic" what the loop costs. Floating-point
operations are counted by torch, and compared with a multiplication of matrices in the same run. The dataset has few
rows, repeated as shards, and is in the page cache: it measures the loader, not the disk.

Checkpoints: half of the windows of 50 steps have one. It needs torch, pyarrow, pydantic, fsspec and safetensors only.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from bench.training.networks import ResNet, Transformer
from tests.gpu import stand_ins

stand_ins.install()

from tests.trainer import datasets  # noqa: E402  needs the stand-ins
from trainyard.schemas import manifest as manifests  # noqa: E402
from trainyard.schemas.manifest import DatasetManifest, Partition, Split, Statistics  # noqa: E402
from trainyard.schemas.specs.strategies import Allreduce  # noqa: E402
from trainyard.schemas.specs.train import TrainOptions  # noqa: E402
from trainyard.trainer.checkpointing.checkpoints import Checkpoints  # noqa: E402
from trainyard.trainer.data.loader import Loader, LocalBatch, build_order  # noqa: E402
from trainyard.trainer.data.split_reader import SplitReader  # noqa: E402
from trainyard.trainer.loop.bottleneck import PhaseSeconds, describe_bottleneck  # noqa: E402
from trainyard.trainer.loop.engine import Training, train  # noqa: E402
from trainyard.trainer.loop.phases import Phases  # noqa: E402
from trainyard.trainer.loop.progress import Progress  # noqa: E402
from trainyard.trainer.model.network import Network  # noqa: E402
from trainyard.trainer.model.recipe import Batch, Recipe  # noqa: E402
from trainyard.trainer.strategies import build_strategy  # noqa: E402
from trainyard.trainer.world import World  # noqa: E402

WARM_STEPS = 10
PIPELINE_GOAL, LOOP_GOAL, STALL_GOAL = 0.97, 0.97, 0.01


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


def build_cases(small: bool) -> list[Case]:
    rng = np.random.default_rng(0)
    images, side, batch = (64, 32, 16) if small else (1024, 224, 128)
    texts, length, texts_in_batch = (64, 32, 8) if small else (2048, 1024, 16)
    words = 512 if small else 50304
    return [
        Case(
            "ResNet-50" if not small else "small ResNet", "image",
            (lambda: ResNet(8, (1, 1, 1, 1))) if small else ResNet,
            lambda output, columns: F.cross_entropy(output, columns["label"]),
            {
                "image": rng.integers(0, 256, (images, 3, side, side), dtype=np.uint8),
                "label": rng.integers(0, 1000, images),
            },
            batch,
        ),
        Case(
            "transformer, 125 M" if not small else "small transformer", "tokens",
            lambda: Transformer(length, 64, 2, 4, words) if small else Transformer(length),
            lambda output, columns: F.cross_entropy(output.flatten(0, 1), columns["tokens"][:, 1:].flatten().long()),
            {"tokens": rng.integers(0, words, (texts, length + 1), dtype=np.int32)},
            texts_in_batch,
        ),
    ]  # fmt: skip


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
    """Yield the batches of a number of steps, stored ones or always the same, and read the clock before each."""

    def __init__(self, data: SplitReader, case: Case, steps: int, clock: Clock, synthetic: LocalBatch | None) -> None:
        order = build_order(data, case.batch, 0, True, None, None)
        super().__init__(data, order, pin=torch.cuda.is_available())
        self._steps, self._clock, self._synthetic = steps, clock, synthetic

    def epoch(self, epoch: int, step: int = 0) -> Iterator[LocalBatch]:
        stored = iter(()) if self._synthetic else super().epoch(epoch, step)
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
    checkpoints: str | None = None, checkpoint_steps: int | None = None,
) -> Phases:  # fmt: skip
    world, phases = World(), Phases(None)

    def step(model: nn.Module, batch: Batch) -> Tensor:
        return case.loss(model(batch), batch)

    recipe = Recipe(model=case.build(), features=case.column, step=step, optimizer=build_optimizer)
    loader = TimedLoader(data, case, steps, clock, synthetic)
    train(
        Training(
            recipe=recipe, network=Network(recipe.model, (loader.column(case.column),), {}), world=world,
            options=TrainOptions(
                epochs=1, batch_size=case.batch, precision="bfloat16", checkpoint_steps=checkpoint_steps,
                checkpoint_minutes=60,
            ),
            strategy=build_strategy(Allreduce(), world), train=loader, validation=None, phases=phases,
            progress=Progress(1, loader.order, False, phases, ()),
            checkpoints=Checkpoints(checkpoints, "bench", "bench", world, 2) if checkpoints else None,
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

    def step(self) -> None:
        features = self._columns[self._case.column]
        with torch.autocast(self._device.type, dtype=torch.bfloat16):
            x = features.float() if features.dtype == torch.uint8 else features
            loss = self._case.loss(self._model(x), self._columns)
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


def measure_limits(small: bool) -> float:
    """Print what the device can do, and return its operations per second in bfloat16."""
    device, size = World().device, 256 if small else 8192
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    seconds = time_best(lambda: a @ b)
    operations = 2 * size**3 / seconds
    print(f"matmul, {size} x {size} in bfloat16: {operations / 1e12:.3g} TFLOP/s")
    if device.type == "cuda":
        host = torch.empty((64 if small else 256) << 20, dtype=torch.uint8, pin_memory=True)
        target = torch.empty_like(host, device=device)
        seconds = time_best(lambda: target.copy_(host, non_blocking=True))
        print(f"copy of pinned memory to the device: {host.nbytes / seconds / 1e9:.1f} GB/s")
        seconds = time_best(lambda: target.clone())
        print(f"copy on the device: {2 * host.nbytes / seconds / 1e9:.0f} GB/s read and written")
    return operations


def time_best(function: Callable[[], Any], calls: int = 10) -> float:
    """Return the seconds of one call, of the best of five rounds."""
    best = float("inf")
    for _ in range(5):
        synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            function()
        synchronize()
        best = min(best, (time.perf_counter() - began) / calls)
    return best


def measure_case(case: Case, limit: float, rounds: int, steps: int, turn: int) -> None:
    device = World().device
    with tempfile.TemporaryDirectory() as folder:
        windows = 7
        data = store(Path(folder, "dataset"), case, max(steps, windows * turn))
        columns = {
            name: torch.from_numpy(values[: case.batch]).to(device)  # type: ignore[arg-type]
            for name, values in case.rows.items()
        }
        synthetic, bare = LocalBatch(0, case.batch, case.batch, columns), BareLoop(case, columns)
        operations = bare.count_operations()
        seconds: dict[str, list[float]] = {"bare": [], "synthetic": [], "stored": []}
        phases = Phases(None)
        for _ in range(rounds):
            for name in seconds:
                clock = Clock(lambda step: step in (WARM_STEPS, steps))
                if name == "bare":
                    bare.run(steps, clock)
                else:
                    phases = run_ours(data, case, steps, clock, synthetic if name == "synthetic" else None)
                seconds[name].append((clock.times[1] - clock.times[0]) / (steps - WARM_STEPS))
        step_seconds = {name: statistics.median(values) for name, values in seconds.items()}
        print(f"\n{case.name}, batches of {case.batch}, {operations / 1e12:.3g} TFLOP a step")
        for name, value in step_seconds.items():
            speed = operations / value
            print(
                f"  {name:9} {value * 1e3:8.2f} ms a step, {case.batch / value:8.0f} rows/s, "
                f"{speed / 1e12:.3g} TFLOP/s, {speed / limit:.2f} of matmul"
            )
        print_ratio("input pipeline keeps the device busy, stored / synthetic", seconds, "synthetic", "stored")
        print_ratio("loop, synthetic / bare", seconds, "bare", "synthetic")
        print(f"  {describe_bottleneck([PhaseSeconds(0, 'this host', phases.totals)], Allreduce())}")
        del bare
        measure_checkpoints(data, case, folder, turn, windows)


def print_ratio(what: str, seconds: dict[str, list[float]], base: str, compared: str) -> None:
    ratios = [one / other for one, other in zip(seconds[base], seconds[compared], strict=True)]
    goal = PIPELINE_GOAL if compared == "stored" else LOOP_GOAL
    print(f"  {what}: {statistics.median(ratios):.3f} (goal {goal}; {min(ratios):.3f} to {max(ratios):.3f})")


def measure_checkpoints(data: SplitReader, case: Case, folder: str, turn: int, windows: int) -> None:
    """Compare windows with a checkpoint in their middle with those between.

    The first checkpoint is left out: it allocates the pinned memory that the others use again.
    """
    clock = Clock(lambda step: step % turn == turn // 2)
    phases = run_ours(data, case, windows * turn, clock, None, f"{folder}/checkpoints", 2 * turn)
    # The middle of window n is step n * turn, and checkpoints are saved after steps 2 * turn, 4 * turn and so on.
    durations = {number: clock.times[number] - clock.times[number - 1] for number in range(3, windows)}
    without = statistics.median(value for number, value in durations.items() if number % 2)
    stall = statistics.median(value for number, value in durations.items() if number % 2 == 0) - without
    size = sum(file.stat().st_size for file in Path(folder, "checkpoints").glob("step-*/*")) / 2
    print(
        f"  a checkpoint of {size / 1e6:.0f} MB every {2 * turn} steps stalls training for {stall * 1e3:.0f} ms: "
        f"{stall / (2 * without):.2%} of the time (goal {STALL_GOAL:.0%}); one every 10 minutes: {stall / 600:.3%}; "
        f"{phases.totals['checkpoint'] * 1e3:.0f} ms in all of their phases, with the first one"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny networks and few steps: only whether it runs")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        print("On a CPU these figures mean nothing: they only show that the program runs.")
    elif not torch.cuda.is_available():
        print("NOT RUN: there is no CUDA device; --device cpu --small shows whether the program runs.")
        return
    else:
        print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    limit = measure_limits(options.small)
    for case in build_cases(options.small):
        measure_case(case, limit, options.rounds, *((14, 6) if options.small else (110, 50)))


if __name__ == "__main__":
    main()
