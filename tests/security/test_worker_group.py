"""Another user of a node, or of the network, and a worker group: it gets in nowhere, and nothing it sends is unpickled.

The attacker is a process of another user of this machine, where root may start one.
"""

from __future__ import annotations

import os
import pickle
import pwd
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch.distributed as dist
from torch.distributed import distributed_c10d

from tests.fork_server import get_context
from tests.trainer.runs import STRATEGIES, get_losses, list_committed, train_with_fault
from tests.trainer.workers import Workers
from trainyard.trainer.connections.rendezvous import serve_store
from trainyard.trainer.world import World

pytestmark = pytest.mark.ranks

SECONDS = timedelta(seconds=2)
ONE_OF_EACH = ("allreduce", "averaging", "threshold", "diloco", "fsdp", "horovod")
"""The strategies without further options."""


def join_stores(end: Connection, ports: list[int]) -> None:
    """Become another user, and send the ports at which it could write to a store of torch."""
    if os.geteuid() == 0:  # elsewhere a process of this user attacks
        nobody = pwd.getpwnam("nobody")
        os.setgroups([])
        os.setgid(nobody.pw_gid)
        os.setuid(nobody.pw_uid)
    joined = []

    def join(port: int) -> None:
        with suppress(dist.DistError):
            store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=SECONDS)
            store.set("address of rank 0", "the attacker's")
            joined.append(port)

    attempts = [threading.Thread(target=join, args=(port,), daemon=True) for port in ports]
    for attempt in attempts:
        attempt.start()
    end_of_attack = time.monotonic() + 10
    for attempt in attempts:
        attempt.join(max(0, end_of_attack - time.monotonic()))  # gloo waits for more
    end.send(joined)
    end.recv()
    os._exit(0)


def attack_stores(ports: list[int]) -> list[int]:
    """Return the ports at which a process of another user could write to a store of torch."""
    context = get_context()
    end, attackers_end = context.Pipe()
    process = context.Process(target=join_stores, args=(attackers_end, ports))
    process.start()
    attackers_end.close()
    joined: list[int] = end.recv()
    end.send("done")
    process.join()
    return joined


def list_ports(process: psutil.Process) -> Iterator[int]:
    for connection in process.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN:
            yield connection.laddr.port


def form_group(world: World) -> int:
    world.create_group()
    return os.getpid()


def test_no_port_of_a_group_is_a_store_that_another_user_can_write_to() -> None:
    open_store = serve_store("127.0.0.1", (), timedelta(minutes=1))  # as for scripts
    with Workers(2) as workers:
        processes = map(psutil.Process, [os.getpid(), *workers(form_group)])
        ports = [port for process in processes for port in list_ports(process)]
        assert len(ports) >= 4, "the driver's, the store's, and those of gloo on each worker"
        assert attack_stores(ports) == [open_store.port]
        assert workers(form_group), "the group still works"


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("something was unpickled")


def train_without_unpickling(
    world: World, batches: str, folder: str, strategy: dict[str, Any]
) -> list[dict[str, float]]:
    places = [(pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (distributed_c10d, "_unpickler")]
    replaced = [getattr(module, name) for module, name in places]
    for module, name in places:
        setattr(module, name, refuse)
    try:
        with pytest.raises(AssertionError, match="unpickled"):  # the refusal works
            dist.all_gather_object([None] * world.size, "text")
        return train_with_fault(world, batches, folder, strategy, None, {"epochs": 1})
    finally:
        for (module, name), function in zip(places, replaced, strict=True):
            setattr(module, name, function)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ONE_OF_EACH else pytest.mark.full) for name in STRATEGIES]
)
def test_no_strategy_unpickles_what_another_worker_sends(
    pair: Workers, batches: str, tmp_path: Path, name: str
) -> None:
    """Neither while it trains, nor for a checkpoint, nor while it resumes."""
    arguments = batches, str(tmp_path), STRATEGIES[name]
    expected = pair(train_without_unpickling, *arguments)[0]
    newest, _ = list_committed(tmp_path)
    shutil.rmtree(newest)
    resumed = pair(train_without_unpickling, *arguments)[0]
    assert get_losses(resumed) == pytest.approx(get_losses(expected), rel=1e-3)
