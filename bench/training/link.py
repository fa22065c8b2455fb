"""Measure strategies over a slow link: two workers in network namespaces, connected by a veth pair limited by tc.

    PYTHONPATH=plugins:. python bench/training/link.py [--mbit 100] [--rounds 1]

Requires root, for `ip netns` and `tc`. Workers have one thread each and train an MLP of 2.2 M parameters, 128 rows
per step; rows/s are those of the faster of two epochs of 50 steps. "Seen" are the bytes that the interface of rank 1
sent, with headers and acknowledgments, for each byte that the strategy counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from tests.trainer import datasets
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.world import World

BATCH, STEPS, INTERFACE = 128, 50, "wire"
ADDRESSES = ("10.0.0.1", "10.0.0.2")
VARIANTS: dict[str, dict[str, Any]] = {
    "allreduce": {"name": "allreduce"},
    "allreduce, fp16": {"name": "allreduce", "compression": "fp16"},
    "allreduce, powersgd of rank 2": {
        "name": "allreduce", "compression": "powersgd", "powersgd_rank": 2, "powersgd_start": 2,
    },
    "averaging": {"name": "averaging"},
    "threshold": {"name": "threshold"},
    "diloco, 50 inner steps": {"name": "diloco", "inner_steps": 50},
}  # fmt: skip


def recipe() -> Recipe:
    torch.manual_seed(0)
    layers = [nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU()]
    return Recipe(
        model=nn.Sequential(*layers, nn.Linear(1024, 10)), features="x", label="label", loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9),
    )  # fmt: skip


@contextmanager
def create_namespaces(mbit: int) -> Iterator[list[str]]:
    """Create two network namespaces with an interface each that sends at most `mbit` Mbit/s."""
    names = [f"trainyard-{os.getpid()}-{rank}" for rank in range(2)]
    try:
        for name in names:
            _run("ip", "netns", "add", name)
        other = ("peer", "name", INTERFACE, "netns", names[1])
        _run("ip", "link", "add", INTERFACE, "netns", names[0], "type", "veth", *other)
        for name, address in zip(names, ADDRESSES, strict=True):
            _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                _run("ip", "-n", name, "link", "set", interface, "up")
            shape = ("tbf", "rate", f"{mbit}mbit", "burst", "64kb", "latency", "50ms")
            _run("tc", "-n", name, "qdisc", "add", "dev", INTERFACE, "root", *shape)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


def _run(*command: str) -> None:
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: {process.stderr.strip()}")


def run_workers(names: list[str], folder: str, rounds: int) -> list[dict[str, Any]]:
    """Run both workers; return what rank 1 measured, an entry for each round and variant."""
    rendezvous = {"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": INTERFACE}
    command = [sys.executable, __file__, "--folder", folder, "--rounds", str(rounds), "--rank"]
    processes = [
        subprocess.Popen(["ip", "netns", "exec", name, *command, str(rank)], env=os.environ | rendezvous)
        for rank, name in enumerate(names)
    ]
    try:
        for process in processes:
            if process.wait():
                raise SystemExit(f"a worker ended with status {process.returncode}")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return [json.loads(line) for line in Path(folder, "measurements").read_text().splitlines()]


def run_worker(rank: int, folder: str, rounds: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    for count in range(rounds):
        for variant, strategy in VARIANTS.items():
            before = _read_sent_bytes()
            fitted = fit(
                "bench.training.link:recipe", dataset=f"{folder}/dataset", model=f"{folder}/{variant}-{count}",
                epochs=2, world=World(rank, 2, host=ADDRESSES[rank]), strategy=strategy, batch_size=BATCH,
            )  # fmt: skip
            epochs = fitted.history.epochs
            measurement = {
                "variant": variant, "seen": (_read_sent_bytes() - before) / fitted.bytes_sent,
                "rows/s": max(epoch["rows_per_second"] for epoch in epochs), "bytes": epochs[-1]["bytes_per_step"],
            }  # fmt: skip
            if rank == 1:
                with Path(folder, "measurements").open("a") as file:
                    print(json.dumps(measurement), file=file)
    dist.destroy_process_group()


def _read_sent_bytes() -> int:
    """Return the bytes that this namespace has sent to the other."""
    return int(Path(f"/sys/class/net/{INTERFACE}/statistics/tx_bytes").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbit", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        run_worker(args.rank, args.folder, args.rounds)
        return
    if os.geteuid() or not all(map(shutil.which, ("ip", "tc"))):
        raise SystemExit("network namespaces need root, and ip and tc; install the package iproute2")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    rng = np.random.default_rng(0)
    columns = {"x": rng.random((BATCH * STEPS, 64), dtype=np.float32), "label": rng.integers(0, 10, BATCH * STEPS)}
    with tempfile.TemporaryDirectory() as folder, create_namespaces(args.mbit) as names:
        datasets.write(Path(folder, "dataset"), {"train": columns}, 1024)
        measurements = run_workers(names, folder, args.rounds)
    for variant in VARIANTS:
        own = [entry for entry in measurements if entry["variant"] == variant]
        dense = [entry for entry in measurements if entry["variant"] == "allreduce"]
        times = statistics.median(a["rows/s"] / b["rows/s"] for a, b in zip(own, dense, strict=True))
        speed, sent, seen = (statistics.median(entry[key] for entry in own) for key in ("rows/s", "bytes", "seen"))
        print(f"{variant}: {speed:,.0f} rows/s, {times:.2f} of allreduce; {sent:,.0f} B/step, seen {seen:.3f} as many")


if __name__ == "__main__":
    main()
