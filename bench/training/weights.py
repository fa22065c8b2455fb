"""Measure the memory that storing and loading a model takes beside the model itself.

    PYTHONPATH=plugins:. python -m bench.training.weights [--gib 6] [--limit 4]

The peak resident memory is reset before each step. It ends with status 1 if a step takes more than the limit.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.model.artifacts import weights

GIB = 1 << 30
LAYER_FLOATS = 8192 * 8192  # 256 MiB


def read_peak() -> int:
    """Return the peak of the resident memory since it was last reset, in bytes."""
    return int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) << 10


def read_resident() -> int:
    """Return the resident memory, in bytes."""
    return int(re.findall(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) << 10


@contextmanager
def measure(step: str, limit: int, failures: list[str]) -> Iterator[None]:
    """Print how far the resident memory rose above its start, and the seconds."""
    Path("/proc/self/clear_refs").write_text("5")
    before, begun = read_resident(), time.perf_counter()
    yield
    beside = read_peak() - before
    print(f"{step}: {beside / GIB:.2f} GiB beside the model, {time.perf_counter() - begun:.0f} s")
    if beside > limit:
        failures.append(step)


def build_model(gib: float) -> nn.Module:
    """Return a module of linear layers of 256 MiB each, all of whose memory is in use."""
    layers = round(gib * GIB / 4 / LAYER_FLOATS)
    return nn.Sequential(*(nn.Linear(8192, 8192, bias=False) for _ in range(layers)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=6.0, help="size of the model")
    parser.add_argument("--limit", type=float, default=4.0, help="memory beside the model, in GiB")
    options = parser.parse_args()
    limit, failures = int(options.limit * GIB), list[str]()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model, uri = build_model(options.gib), f"file://{folder}/model"
        print(f"model: {options.gib:.1f} GiB")
        with measure("store", limit, failures):
            written = weights.write(uri, model)
        assert written
        artifact = ModelArtifact.model_construct(
            weights=written.files, weights_sha256=written.sha256, aliases=written.aliases
        )
        before = model[0].weight.clone()
        model[0].weight.zero_()
        with measure("load", limit, failures):
            weights.load_into(model, uri, artifact)
        assert torch.equal(model[0].weight, before)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
