"""The steps of a ResNet-50 and of a transformer of 125 M parameters: bare, on one batch, and on stored ones."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from bench.training.gpu.checkpoints import measure_checkpoints
from bench.training.gpu.loops import WARM_STEPS, BareLoop, Case, Clock, print_ratio, run_ours, store
from bench.training.gpu.networks import ResNet, Transformer
from trainyard.schemas.specs.strategies import Allreduce
from trainyard.trainer.data.loader import LocalBatch
from trainyard.trainer.measuring.bottleneck import PhaseSeconds, describe_bottleneck
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.world import World

PIPELINE_GOAL = LOOP_GOAL = 0.97


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
        print_ratio(
            "input pipeline keeps the device busy, stored / synthetic", seconds, "synthetic", "stored", PIPELINE_GOAL
        )
        print_ratio("loop, synthetic / bare", seconds, "bare", "synthetic", LOOP_GOAL)
        print(f"  {describe_bottleneck([PhaseSeconds(0, 'this host', phases.totals)], Allreduce())}")
        del bare
        measure_checkpoints(data, case, folder, turn, windows)
