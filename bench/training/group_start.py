"""Measure the start of a worker group: the driver's authenticated store and the proofs, beside torch's TCPStore.

    PYTHONPATH=plugins:. python bench/training/group_start.py [--sizes 2,8,32] [--rounds 7]

Each worker is a process of this machine with one thread. A round creates a gloo group by one store and by the other,
reduces one number, and ends it; the time is that of the slowest worker. The last column is the part of the proofs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.connections.store import Store
from trainyard.trainer.group.group_server import GroupServer
from trainyard.trainer.membership import Membership

SECONDS = timedelta(minutes=2)


def start_group(rank: int, size: int, address: DriverAddress | int) -> tuple[float, float]:
    """Return the seconds until a group has reduced a number, and those of the proofs."""
    began = time.perf_counter()
    if isinstance(address, DriverAddress):
        store: Any = Store(address, SECONDS)
    else:
        store = dist.TCPStore("127.0.0.1", address, is_master=False, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    formed = time.perf_counter()
    if isinstance(address, DriverAddress):
        Membership(address.secret, rank, size).verify(torch.device("cpu"))
    proven = time.perf_counter()
    dist.all_reduce(torch.ones(1))
    ended = time.perf_counter()
    dist.destroy_process_group()
    return ended - began, proven - formed


def run_worker(end: Connection, rank: int, size: int) -> None:
    """Start groups until the parent closes the connection."""
    torch.set_num_threads(1)
    while (address := end.recv()) is not None:
        end.send(start_group(rank, size, address))


def measure(size: int, rounds: int) -> None:
    """Print a row of the table."""
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in range(size)]
    processes = [context.Process(target=run_worker, args=(pipes[rank][1], rank, size)) for rank in range(size)]
    for process in processes:
        process.start()

    def run(address: DriverAddress | int) -> tuple[float, float]:
        for own_end, _ in pipes:
            own_end.send(address)
        totals, proofs = zip(*(own_end.recv() for own_end, _ in pipes), strict=True)
        return max(totals), max(proofs)

    ours, proofs, theirs = [], [], []
    for _ in range(rounds):
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        theirs.append(run(store.port)[0])
        with GroupServer("127.0.0.1") as server:
            total, proof = run(server.address)
        ours.append(total)
        proofs.append(proof)
    for own_end, _ in pipes:
        own_end.send(None)
    for process in processes:
        process.join()
    seconds, by_torch, of_proofs = map(statistics.median, (ours, theirs, proofs))
    print(f"| {size} | {by_torch:.3f} | {seconds:.3f} | {seconds / by_torch:.2f} | {of_proofs:.4f} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="2,8,32")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    print(
        "| workers | TCPStore, s | driver's store and proofs, s | ratio | proofs, s |\n| --- | --- | --- | --- | --- |"
    )
    for size in map(int, arguments.sizes.split(",")):
        measure(size, arguments.rounds)


if __name__ == "__main__":
    main()
