"""Run a user's own training script on a worker group, unchanged: as `torchrun` or `horovodrun` would start it."""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from trainyard.errors import TrainyardError
from trainyard.schemas.events import EventLog
from trainyard.schemas.phases import Phase
from trainyard.schemas.results import ScriptResult
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.trainer.connections import rendezvous
from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.connections.process_group import end_process_group
from trainyard.trainer.folders import compile_privately
from trainyard.trainer.group import supervisor
from trainyard.trainer.group.heartbeats import HeartbeatSender
from trainyard.trainer.group.outcome import Outcome, build_failure
from trainyard.trainer.group.output import prefix_output
from trainyard.trainer.group.worker import process_name
from trainyard.trainer.measuring.phases import CurrentPhase

STORE_TIMEOUT = timedelta(minutes=30)
"""As torch's default of a process group."""


def run(spark: Any, spec: ScriptSpec, events: EventLog) -> ScriptResult:
    """Run the script on `spec.workers` workers.

    Args:
        spark: The SparkSession.
        spec: The script and its arguments.
        events: The events of the driver.

    Raises:
        TrainyardError: A worker failed; the message names the first one that did.
    """
    text = spec.to_json()

    def work(task: Any, start: int, driver: DriverAddress, cores: int) -> Outcome:
        return _run_worker(task, ScriptSpec.from_json(text), start, driver, cores)

    context, size = spark.sparkContext, spec.workers
    return ScriptResult(**supervisor.supervise(context, work, events, size, size, spec.max_restarts))


def build_environment(
    spec: ScriptSpec, hosts: Sequence[str], rank: int, master: str, cores: int, start: int = 0
) -> dict[str, str]:
    """Return the environment variables that `torchrun` would set for a worker.

    Args:
        spec: The script, whose task is the run's id.
        hosts: The host of each worker, by rank.
        rank: The number of the worker.
        master: Where the store of the process group is served ("host:port"), as by torchrun's agent.
        cores: The cores of each worker, which are its threads.
        start: How often the group was restarted.
    """
    unique, host, key = list(dict.fromkeys(hosts)), hosts[rank], spec.task_key
    address, _, port = master.rpartition(":")
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(hosts)),
        "LOCAL_RANK": str(hosts[:rank].count(host)),
        "LOCAL_WORLD_SIZE": str(hosts.count(host)),
        "GROUP_RANK": str(unique.index(host)),
        "GROUP_WORLD_SIZE": str(len(unique)),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(len(hosts)),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": str(cores),
        "TORCHELASTIC_RUN_ID": f"{key.dag_id}/{key.run_id}/{key.task}",
        "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
        "TORCHELASTIC_RESTART_COUNT": str(start),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _run_worker(context: Any, spec: ScriptSpec, start: int, driver: DriverAddress, cores: int) -> Outcome:
    """Run the script as one worker.

    A worker that fails by itself reports its failure and raises it, so that Spark ends the others, whatever they wait
    for. A worker that is done, or was disconnected by the failure of another, waits at the barrier: rank 0 serves the
    rendezvous until then.

    Args:
        context: The BarrierTaskContext of the worker.
        spec: The script.
        start: How often the group was restarted.
        driver: Where the worker reports a failure.
        cores: The cores of the worker, which are its threads.
    """
    import torch

    from trainyard.trainer.connections.store import Store

    torch.set_num_threads(cores)  # it has read OMP_NUM_THREADS before
    rank, size, host = context.partitionId(), len(context.getTaskInfos()), socket.gethostname()
    events = EventLog(spec.task_key.directory, spec.task_key.task, process_name(rank, start), rank)
    outcome = Outcome(rank, host, time.time(), result={"workers": size})
    with ExitStack() as stack:
        heartbeats = stack.enter_context(HeartbeatSender(driver, rank, host, CurrentPhase()))
        with events.span(Phase.RENDEZVOUS):
            variables = stack.enter_context(_serve_rendezvous(context, spec, cores, start))
            if size > 1:
                store = stack.enter_context(closing(Store(driver, STORE_TIMEOUT)))
                stack.enter_context(rendezvous.use_store(store, rank, size))
        try:
            compile_privately()
            with events.span(Phase.SCRIPT), prefix_output(rank), _set_program(spec, variables):
                _execute(spec.script)
        except BaseException as error:
            outcome = build_failure(rank, error, heartbeats.clock)
            heartbeats.report_failure(outcome)
        events.close()
        if outcome.is_cause:
            raise TrainyardError(outcome.describe_failure(size))
        _clean_up(abort=outcome.error is not None)
        context.barrier()
    return outcome


@contextmanager
def _serve_rendezvous(context: Any, spec: ScriptSpec, cores: int, start: int) -> Iterator[dict[str, str]]:
    """Yield the variables by which the script connects to the other workers.

    Rank 0 serves the rendezvous of torch meanwhile, and that of Horovod if it is installed.
    """
    from trainyard.trainer.strategies import horovod

    rank, host = context.partitionId(), rendezvous.get_own_address(context)
    hosts = context.allGather(_get_locality(context, host))
    store, addresses = None, {}
    with ExitStack() as stack:
        if rank == 0:
            store = rendezvous.serve_store(host, rendezvous.list_other_hosts(context))
            addresses["torch"] = f"{host}:{store.port}"
            if importlib.util.find_spec("horovod"):
                addresses["horovod"] = stack.enter_context(horovod.serve(hosts, host))
        addresses = json.loads(context.allGather(json.dumps(addresses))[0])
        variables = build_environment(spec, hosts, rank, addresses["torch"], cores, start)
        if "horovod" in addresses:
            variables |= horovod.build_environment(hosts, rank, addresses["horovod"])
        yield variables


def _get_locality(context: Any, host: str) -> str:
    """Return what the workers with one sequence of local ranks have in common: they select GPUs by their local ranks.

    A container that YARN assigned GPUs to sees these only; otherwise all workers of a host see the same GPUs.
    """
    return os.environ.get("CONTAINER_ID", host) if "gpu" in context.resources() else host


@contextmanager
def _set_program(spec: ScriptSpec, variables: dict[str, str]) -> Iterator[None]:
    """Set the script's command line and environment, and restore the old ones: Spark reuses the process."""
    arguments, path, environment = sys.argv, sys.path[:], dict(os.environ)
    sys.argv = [spec.script, *spec.arguments]
    os.environ |= variables
    try:
        yield
    finally:
        sys.argv, sys.path[:] = arguments, path
        os.environ.clear()
        os.environ |= environment


def _execute(script: str) -> None:
    """Run the module, which can import modules of its own folder; an exit status other than 0 is an error."""
    module = importlib.util.find_spec(script)
    if module and module.origin:
        sys.path.insert(0, str(Path(module.origin).parent))
    try:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            raise TrainyardError(f"{script} ended: {end.code}") from None
        if end.code:
            raise TrainyardError(f"{script} ended with exit status {end.code}; its output is in the log") from None


def _clean_up(abort: bool) -> None:
    """End what the script left running, as the end of its process would."""
    end_process_group(abort)
    if (hvd := sys.modules.get("horovod.torch")) and hvd.is_initialized():
        hvd.shutdown()
