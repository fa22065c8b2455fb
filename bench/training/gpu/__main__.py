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

Checkpoints: half of the windows of 50 steps have one. A checkpoint is written while training goes on, and the next one
waits for it, so that the time of a write and the speed of the disk are printed as well.

Two million rows of 100 values, whose network takes less time than their way to the device: batches from the memory of
the device (`gpu_cache_gb`), the stored ones, those of torch's DataLoader with four workers over tensors in memory, and
as the limit a loop of torch calls that gathers them on the device.

It needs torch, pyarrow, pydantic, fsspec and safetensors only.
"""

from __future__ import annotations

import argparse
import os

import torch

from bench.training.gpu.limits import measure_limits
from bench.training.gpu.steps import build_cases, measure_case
from bench.training.gpu.table import measure_table


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
    measure_table(options.small, options.rounds)
    for case in build_cases(options.small):
        measure_case(case, limit, options.rounds, *((14, 6) if options.small else (110, 50)))


if __name__ == "__main__":
    main()
