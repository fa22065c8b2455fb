"""Workers as processes of this machine, without Spark: call a function in each, and collect the results."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

from tests.fork_server import get_context
from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.group.group_server import GroupServer

SECONDS = 300


class Workers:
    """`size` connected workers, which call one function after the other until one fails."""

    def __init__(self, size: int) -> None:
        context = get_context()
        self._server = GroupServer("127.0.0.1").__enter__()
        self._ends: list[Connection] = []
        self.processes = []
        for rank in range(size):
            own_end, worker_end = context.Pipe()
            process = context.Process(
                target=_run_worker, args=(worker_end, rank, size, self._server.address), daemon=True
            )
            process.start()
            worker_end.close()
            self._ends.append(own_end)
            self.processes.append(process)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            end.close()
        for process in self.processes:
            process.join(SECONDS)
            assert process.exitcode is not None
        self._server.__exit__()

    def start(self, function: Callable[..., Any], *arguments: Any) -> Workers:
        """Call `function(world, *arguments)` in each worker."""
        for end in self._ends:
            end.send((function, arguments))
        return self

    def outcomes(self) -> list[Any]:
        """Return for each worker a tuple of its result, the traceback of its exception, or None if it was killed."""
        return [_receive(end) for end in self._ends]

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the results of `function(world, *arguments)` in each worker. Raises AssertionError if one fails."""
        outcomes = self.start(function, *arguments).outcomes()
        for outcome in outcomes:
            if not isinstance(outcome, tuple):
                raise AssertionError(outcome)
        return [outcome[0] for outcome in outcomes]


def _receive(end: Connection) -> Any:
    try:
        return end.recv() if end.poll(SECONDS) else "no answer"
    except (EOFError, ConnectionResetError):
        return None


def _run_worker(end: Connection, rank: int, size: int, driver: DriverAddress) -> None:
    import torch
    import torch.distributed as dist

    from trainyard.trainer.connections.process_group import create_process_group
    from trainyard.trainer.connections.store import Store
    from trainyard.trainer.membership import Membership
    from trainyard.trainer.world import World

    torch.set_num_threads(1)
    world = World(rank, size, membership=Membership(driver.secret, rank, size))
    if size > 1:
        create_process_group(world, Store(driver, timedelta(seconds=SECONDS)), timedelta(minutes=30))
    while True:
        try:
            function, arguments = end.recv()
        except EOFError:
            break
        try:
            end.send((function(world, *arguments),))
        except BaseException:
            if dist.is_initialized():  # fails the collectives of the other workers
                dist.destroy_process_group()
            end.send(traceback.format_exc())
            break
    if dist.is_initialized():
        dist.destroy_process_group()
