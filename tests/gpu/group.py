"""A worker group as processes of this machine: does for it what Spark does, without Spark."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import Any

from tests.fork_server import get_context
from tests.gpu import stand_ins

stand_ins.install()

from trainyard.trainer.connections.channel import DriverAddress  # noqa: E402  after the stand-ins
from trainyard.trainer.group.group_server import GroupServer  # noqa: E402

SECONDS = 240
WORKERS = 2


class Task:
    """What a worker uses of Spark's BarrierTaskContext. Messages are exchanged over the store of the group.

    Args:
        rank: The number of the worker.
        size: How many workers there are.
        driver: The driver of the group.
        gpus: The addresses of the GPUs that Spark assigned to the task.
    """

    def __init__(self, rank: int, size: int, driver: DriverAddress, gpus: Sequence[str]) -> None:
        from trainyard.trainer.connections.store import Store

        self._rank, self._size, self.driver, self._gpus, self._round = rank, size, driver, gpus, 0
        self._store = Store(driver, timedelta(seconds=SECONDS))

    def partitionId(self) -> int:  # noqa: N802  Spark's name
        return self._rank

    def getTaskInfos(self) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(address="127.0.0.1:0")] * self._size

    def resources(self) -> dict[str, Any]:
        return {"gpu": SimpleNamespace(addresses=list(self._gpus))} if self._gpus else {}

    def allGather(self, message: str) -> list[str]:  # noqa: N802
        self._round += 1
        self._store.set(f"task/{self._round}/{self._rank}", message)
        return [self._store.get(f"task/{self._round}/{rank}").decode() for rank in range(self._size)]


def count_workers(device: str, strategy: str = "allreduce") -> int:
    """Return the size of a group: one worker for each GPU, but two on a CPU.

    A single GPU is shared by two workers too, except with FSDP, which refuses that.
    """
    import torch

    if device == "cpu":
        return WORKERS
    count = torch.cuda.device_count()
    return count if strategy == "fsdp" else max(count, WORKERS)


def run(
    device: str,
    size: int,
    function: Callable[..., Any],
    *arguments: Any,
    gpus: Sequence[Sequence[str]] | None = None,
    visible: str | None = None,
) -> list[Any]:
    """Return the results of `function(task, *arguments)` in each worker. Raises AssertionError if one fails.

    Args:
        device: "cpu" or "cuda".
        size: The number of workers.
        function: A function of a module.
        arguments: Its arguments.
        gpus: The addresses of the GPUs that Spark assigned to each task.
        visible: The GPUs that the processes see; by default all.
    """
    results = run_until_failure(device, size, function, *arguments, gpus=gpus, visible=visible)
    for result in results:
        if not isinstance(result, tuple):
            raise AssertionError(result)
    return [result[0] for result in results]


def run_until_failure(
    device: str,
    size: int,
    function: Callable[..., Any],
    *arguments: Any,
    gpus: Sequence[Sequence[str]] | None = None,
    visible: str | None = None,
) -> list[Any]:
    """Return for each worker a tuple of its result, or the traceback of its exception.

    After the first failure the other workers get some seconds to end, and are killed then, as by Spark; theirs is None.
    """
    context = get_context("tests.gpu.group")
    seen = visible if device == "cuda" else ""
    ends, processes = [], []
    with GroupServer("127.0.0.1") as server:
        for rank in range(size):
            own_end, worker_end = context.Pipe()
            task = (rank, size, server.address, gpus[rank] if gpus else ())
            process = context.Process(
                target=_run_worker, args=(worker_end, task, seen, sys.path, function, arguments), daemon=True
            )
            process.start()
            worker_end.close()
            ends.append(own_end)
            processes.append(process)
        try:
            return _receive(ends)
        finally:
            for process in processes:
                if process.is_alive():
                    process.join(5)
                if process.is_alive():
                    os.kill(process.pid or 0, signal.SIGKILL)
                process.join()


def _receive(ends: list[Connection]) -> list[Any]:
    results: dict[int, Any] = {}
    seconds = SECONDS
    while len(results) < len(ends):
        ready = wait([end for rank, end in enumerate(ends) if rank not in results], seconds)
        if not ready:
            break
        for end in ready:
            rank = ends.index(end)  # type: ignore[arg-type]
            try:
                results[rank] = end.recv()  # type: ignore[union-attr]
            except EOFError:
                results[rank] = "the process ended without a result"
            if not isinstance(results[rank], tuple):
                seconds = 20
    return [results.get(rank) for rank in range(len(ends))]


def _run_worker(
    end: Connection,
    task: tuple[int, int, DriverAddress, Sequence[str]],
    visible: str | None,
    path: list[str],
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    sys.path[:] = path
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    try:
        end.send((function(Task(*task), *arguments),))
    except BaseException:
        end.send(traceback.format_exc())
    end.close()
