"""A script of the user's own on each rank of a gang: unchanged, as `torchrun` or `horovodrun` would start it."""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from trainyard.errors import TrainyardError
from trainyard.schemas.events import EventLog
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.trainer.group import rendezvous, supervisor
from trainyard.trainer.group.heartbeats import MonitorAddress
from trainyard.trainer.group.outcome import Outcome, failure


def run(spark: Any, spec: ScriptSpec, events: EventLog) -> dict[str, Any]:
    """Run the script on `spec.workers` ranks. Raises TrainyardError that names the rank that failed first."""
    text = spec.to_json()

    def rank(task: Any, start: int, monitor: MonitorAddress) -> Outcome:
        return _run(task, ScriptSpec.from_json(text), start)

    return supervisor.supervise(spark.sparkContext, rank, events, spec.workers, spec.workers, spec.max_restarts)


def environment(hosts: Sequence[str], rank: int, master: str, start: int = 0) -> dict[str, str]:
    """What `torchrun` sets for `rank`, in the `start`-th start (from 0) of a gang that meets at `master` ("host:port").

    `hosts` is where each rank runs. The store at `master` is there already, as that of torchrun's agent.
    """
    names, here = list(dict.fromkeys(hosts)), hosts[rank]
    address, _, port = master.rpartition(":")
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_RANK": str(hosts[:rank].count(here)),
        "LOCAL_WORLD_SIZE": str(hosts.count(here)),
        "GROUP_RANK": str(names.index(here)),
        "GROUP_WORLD_SIZE": str(len(names)),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "TORCHELASTIC_RESTART_COUNT": str(start),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _run(context: Any, spec: ScriptSpec, start: int) -> Outcome:
    """Run the script as the rank that the barrier task of `context` is, in the gang's `start`-th start (from 0).

    A rank that fails by itself raises, and Spark ends the others, whatever they wait for. One that is done, or was
    cut off by the failure of another, waits for the others: rank 0 serves until then.
    """
    rank, size = context.partitionId(), len(context.getTaskInfos())
    process = f"rank {rank}" if start == 0 else f"rank {rank}, start {start + 1}"
    events = EventLog(spec.task_key.directory, spec.task_key.task, process, rank)
    outcome = Outcome(rank, socket.gethostname(), time.time(), result={"workers": size})
    with ExitStack() as meeting:
        with events.span("rendezvous"):
            variables = meeting.enter_context(_met(context, start))
        try:
            with events.span("script"), _as_program(spec, variables):
                _execute(spec.script)
        except BaseException as error:
            outcome = failure(rank, error)
            if outcome.ended == "failed":
                raise TrainyardError(_without_blank_lines(outcome.told(size))) from None
        finally:
            events.flush()
        _leave()
        context.barrier()
    return outcome


@contextmanager
def _met(context: Any, start: int) -> Iterator[dict[str, str]]:
    """What tells this rank of the others. Rank 0 serves torch's rendezvous and Horovod's, if installed, meanwhile."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    from trainyard.trainer.strategies import horovod

    rank, host = context.partitionId(), rendezvous.own_address(context)
    hosts = context.allGather(_local(context, host))
    store, server, served = None, None, {}
    if rank == 0:
        store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        served["torch"] = f"{host}:{store.port}"
        if importlib.util.find_spec("horovod"):
            server, port = horovod.serve(hosts)
            served["horovod"] = f"{host}:{port}"
    served = json.loads(context.allGather(json.dumps(served))[0])
    variables = environment(hosts, rank, served["torch"], start)
    if "horovod" in served:
        variables |= horovod.environment(hosts, rank, served["horovod"])
    try:
        yield variables
    finally:
        if server:
            server.stop()


def _local(context: Any, host: str) -> str:
    """Within what ranks count as local: they take the GPUs that they see there by their local ranks.

    A container that YARN gave GPUs sees these alone; else all ranks of a host see the same.
    """
    return os.environ.get("CONTAINER_ID", host) if "gpu" in context.resources() else host


@contextmanager
def _as_program(spec: ScriptSpec, variables: dict[str, str]) -> Iterator[None]:
    """Command line and environment of the script; put back afterwards, for Spark uses the process again."""
    arguments, path, before = sys.argv, sys.path[:], dict(os.environ)
    sys.argv = [spec.script, *spec.arguments]
    os.environ |= variables
    try:
        yield
    finally:
        sys.argv, sys.path[:] = arguments, path
        os.environ.clear()
        os.environ |= before


def _execute(script: str) -> None:
    """Run the module, which finds those beside it. Raises TrainyardError when its exit status is not 0."""
    found = importlib.util.find_spec(script)
    if found and found.origin:
        sys.path.insert(0, str(Path(found.origin).parent))
    try:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            raise TrainyardError(f"{script} ended: {end.code}") from None
        if end.code:
            raise TrainyardError(f"{script} ended with exit status {end.code}; what it printed is in the log") from None


def _leave() -> None:
    """End what the script left up, as the end of its process would."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
    if (hvd := sys.modules.get("horovod.torch")) and hvd.is_initialized():
        hvd.shutdown()


def _without_blank_lines(text: str) -> str:
    """`text` as it survives the way through Spark's own message, where a blank line ends it."""
    return "\n".join(line for line in text.splitlines() if line.strip())
