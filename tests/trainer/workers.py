"""Ranks as processes of this machine, without Spark: a function is called in each, and what it returns comes back."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

SECONDS = 300


class Workers:
    """`size` ranks that have met, and do one thing after the other, until one fails."""

    def __init__(self, size: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.trainer.workers", "trainyard.trainer.loop.fit"])
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._ends: list[Connection] = []
        self.processes = []
        for rank in range(size):
            mine, theirs = context.Pipe()
            process = context.Process(target=_rank, args=(theirs, rank, size, port), daemon=True)
            process.start()
            theirs.close()
            self._ends.append(mine)
            self.processes.append(process)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            end.close()
        for process in self.processes:
            process.join(SECONDS)
            assert process.exitcode is not None

    def begin(self, function: Callable[..., Any], *arguments: Any) -> Workers:
        """Let each rank call `function(world, *arguments)`."""
        for end in self._ends:
            end.send((function, arguments))
        return self

    def outcomes(self) -> list[Any]:
        """For each rank a tuple of what it returned; else the exception's traceback; or None: it was killed."""
        return [_received(end) for end in self._ends]

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What `function(world, *arguments)` returns on each rank. Raises AssertionError with a rank's failure."""
        outcomes = self.begin(function, *arguments).outcomes()
        for outcome in outcomes:
            if not isinstance(outcome, tuple):
                raise AssertionError(outcome)
        return [outcome[0] for outcome in outcomes]


def _received(end: Connection) -> Any:
    try:
        return end.recv() if end.poll(SECONDS) else "nothing was heard of it"
    except (EOFError, ConnectionResetError):
        return None


def _rank(end: Connection, rank: int, size: int, port: int) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    import torch
    import torch.distributed as dist

    from trainyard.trainer.world import World

    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group("gloo", rank=rank, world_size=size)
    while True:
        try:
            function, arguments = end.recv()
        except EOFError:
            break
        try:
            end.send((function(World(rank, size), *arguments),))
        except BaseException:
            if dist.is_initialized():  # whoever waits for this rank in vain hears of it so
                dist.destroy_process_group()
            end.send(traceback.format_exc())
            break
    if dist.is_initialized():
        dist.destroy_process_group()
