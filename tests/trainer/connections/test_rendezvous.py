"""The rendezvous of a worker group: where rank 0 listens."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from socket import AF_INET
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from tests.fork_server import get_context
from trainyard.errors import TrainyardError
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.trainer.connections import rendezvous
from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.connections.rendezvous import get_interface, join_group, listen_as_gloo, serve_store, use_store
from trainyard.trainer.group import script
from trainyard.trainer.group.group_server import GroupServer
from trainyard.trainer.scripts.session import Restored

SECONDS = timedelta(seconds=20)
NOT_OF_THIS_HOST = "192.0.2.1"
DRIVER = DriverAddress("127.0.0.1", 1, b"secret")
NOTHING = Restored(1, 0, None)
SCRIPT = ScriptSpec(task_key=TaskKey(dag_id="d", run_id="r", task_id="train", directory="/run"), script="program")


def build_context(
    host: str, size: int = 1, gather: Callable[[str], list[str]] = lambda message: [message], others: Sequence[str] = ()
) -> Any:
    """Return the BarrierTaskContext of rank 0; all workers are on the same host, or each on one of `others`."""
    tasks = [SimpleNamespace(address=f"{each}:4040") for each in (host, *(others or [host] * (size - 1)))]
    return SimpleNamespace(partitionId=lambda: 0, getTaskInfos=lambda: tasks, resources=dict, allGather=gather)


def find_listening(port: int) -> set[str]:
    connections = psutil.Process().net_connections()
    return {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN and each.laddr.port == port}


@pytest.fixture(autouse=True)
def no_local_ip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2"),
        ("localhost", "127.0.0.1"),
    ],
)
def test_the_store_listens_on_the_address_of_its_host_only_and_clients_connect(host: str, address: str) -> None:
    store = serve_store(host, (), SECONDS)
    assert find_listening(store.port) == {address}
    client = TCPStore(host, store.port, is_master=False, wait_for_workers=False, timeout=SECONDS)
    store.set("name", "value")
    assert client.get("name") == b"value"
    port = store.port
    del client, store
    assert not find_listening(port)


def test_rank_0_of_a_script_listens_on_its_own_address_only() -> None:
    with script._serve_rendezvous(build_context("127.0.0.1", 2), SCRIPT, 1, 0, NOTHING) as (variables, _):
        assert variables["MASTER_ADDR"] == "127.0.0.1"
        assert find_listening(int(variables["MASTER_PORT"])) == {"127.0.0.1"}
    with script._serve_rendezvous(build_context("127.0.0.1"), SCRIPT, 1, 0, NOTHING) as (variables, _):
        assert find_listening(int(variables["MASTER_PORT"])) == set(), "a single worker meets nobody"


def test_a_host_that_is_not_this_one_is_refused() -> None:
    refused = pytest.raises(TrainyardError, match=f"^a worker cannot listen on {NOT_OF_THIS_HOST}: .*assign requested")
    with refused:
        join_group(build_context(NOT_OF_THIS_HOST, 2), DRIVER, SECONDS, 1)
    with refused, script._serve_rendezvous(build_context(NOT_OF_THIS_HOST), SCRIPT, 1, 0, NOTHING):
        pass


def test_a_node_whose_name_stands_for_its_loopback_address_is_refused_where_other_nodes_connect() -> None:
    """Debian's installer writes the host's name beside 127.0.1.1 into /etc/hosts."""
    message = (
        "^a worker cannot listen on localhost: on its own node the name stands for 127.0.0.1, .* /etc/hosts there$"
    )
    with pytest.raises(TrainyardError, match=message):
        join_group(build_context("localhost", 2, others=[NOT_OF_THIS_HOST]), DRIVER, SECONDS, 1)
    with (
        pytest.raises(TrainyardError, match=message),
        script._serve_rendezvous(build_context("localhost", 2, others=[NOT_OF_THIS_HOST]), SCRIPT, 1, 0, NOTHING),
    ):
        pass
    assert serve_store("localhost", ["127.0.0.2"], SECONDS).port


def get_address() -> str:
    """Return an address of this host that its own name does not stand for, as with 127.0.1.1 in /etc/hosts."""
    own = {str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)}
    addresses = [each.address for all_of in psutil.net_if_addrs().values() for each in all_of if each.family == AF_INET]
    return next(address for address in addresses if address not in own)


def list_listening(rank: int, address: str, driver: DriverAddress) -> set[str]:
    context = build_context(address, 2)
    context.partitionId = lambda: rank
    join_group(context, driver, SECONDS, 1)
    connections = psutil.Process().net_connections()
    dist.destroy_process_group()
    return {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}


def test_workers_listen_where_spark_reaches_their_nodes_whatever_a_nodes_own_name_stands_for() -> None:
    address = get_address()
    with GroupServer("127.0.0.1") as server, ProcessPoolExecutor(2, get_context()) as pool:
        workers = [pool.submit(list_listening, rank, address, server.address) for rank in range(2)]
        assert [worker.result(60) for worker in workers] == [{address}] * 2


def test_an_interface_that_the_user_has_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with listen_as_gloo(build_context(NOT_OF_THIS_HOST, 2), NOT_OF_THIS_HOST) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        assert get_interface(listener) == {}


def test_workers_with_another_torch_than_rank_0_are_refused() -> None:
    store = dist.HashStore()
    rendezvous._compare_builds(store, 0, "node1")
    rendezvous._compare_builds(store, 1, "node2")
    store.set("build", '["node1", "torch 2.10.0+cu126 on Python 3.11"]')
    message = r"^rank 1 on node2 has torch .*, but rank 0 on node1 torch 2\.10\.0\+cu126 on Python 3\.11\. Install the"
    with pytest.raises(TrainyardError, match=message):
        rendezvous._compare_builds(store, 1, "node2")


def test_a_script_connects_by_the_store_of_its_group_and_not_by_its_environment() -> None:
    store = dist.HashStore()
    with use_store(store, 1, 2):
        assert next(dist.rendezvous("env://")) == (store, 1, 2)
    with pytest.raises(ValueError, match="environment variable RANK expected"):
        next(dist.rendezvous("env://"))
