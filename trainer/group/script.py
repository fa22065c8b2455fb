"""Run a user's own training script on a worker group, unchanged: as `torchrun` or `horovodrun` would start it."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from trainyard.errors import TrainyardError, UnavailableError
from trainyard.files.retries import retry
from trainyard.schemas.results import ScriptResult
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.trainer.connections import rendezvous
from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.connections.clock import Offset
from trainyard.trainer.connections.dialing import dial_others
from trainyard.trainer.folders import compile_privately
from trainyard.trainer.group import script_process, supervisor
from trainyard.trainer.group.heartbeats import SILENCE_SECONDS, HeartbeatSender, parse_silence_seconds
from trainyard.trainer.group.outcome import Outcome, build_failure
from trainyard.trainer.group.output import prefix_output
from trainyard.trainer.group.script_main import STORE_TIMEOUT, Start
from trainyard.trainer.group.script_process import ScriptProcess
from trainyard.trainer.group.worker import checkpoint_root, process_name
from trainyard.trainer.measuring.phases import CurrentPhase
from trainyard.trainer.measuring.tracking import open_trackers
from trainyard.trainer.run.signals.control_sync import Termination
from trainyard.trainer.scripts.checkpoints import SavedProgress
from trainyard.trainer.scripts.session import Restored, Session, restore
from trainyard.trainer.scripts.tracking import BackgroundTracking

ASK_SECONDS = 1.0
"""How often a worker asks whether another one has failed."""
ENDING, ENDED = "script/ending", "script/ended"
"""Keys of the store: a worker ends all others, and how many scripts have ended."""


def run(spark: Any, spec: ScriptSpec, events: EventLog) -> ScriptResult:
    """Run the script on `spec.workers` workers.

    Args:
        spark: The SparkSession.
        spec: The script and its arguments.
        events: The events of the driver.

    Raises:
        TrainyardError: A worker failed; the message names the first one that did.
    """
    context, text, root = spark.sparkContext, spec.to_json(), checkpoint_root(spec.task_key)
    silence_seconds = parse_silence_seconds(context.getConf().get(SILENCE_SECONDS))
    retry(f"remove old checkpoints in {root}", partial(supervisor.remove_finished_checkpoints, spec.task_key, root))

    def work(task: Any, start: int, driver: DriverAddress, cores: int) -> Outcome:
        return _run_worker(task, ScriptSpec.from_json(text), start, driver, cores, silence_seconds)

    progress = SavedProgress(root)
    result = supervisor.supervise(
        context, work, events, spec.min_workers, spec.max_workers, spec.max_restarts,
        progress, 60 * spec.hang_minutes, supervisor.save_progress(spec.task_key),
        lambda _: f" from checkpoint {progress.newest}",
    )  # fmt: skip
    return ScriptResult(**result)


def build_environment(
    spec: ScriptSpec, hosts: Sequence[str], rank: int, master: str, cores: int, start: int = 0
) -> dict[str, str]:
    """Return the environment variables that `torchrun` would set for a worker.

    Args:
        spec: The script, whose task is the run's id.
        hosts: The host of each worker, by rank.
        rank: The number of the worker.
        master: Where the store of the process group is served ("host:port"), as by torchrun's agent; for a single
            worker a free port, where the script may serve one.
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
        "TORCHELASTIC_USE_AGENT_STORE": str(len(hosts) > 1),  # what a single worker spawns serves a store of its own
    }


def _run_worker(
    context: Any, spec: ScriptSpec, start: int, driver: DriverAddress, cores: int, silence_seconds: float
) -> Outcome:
    """Run the script as one worker.

    A worker whose script fails by itself reports its failure, lets the other scripts end, and raises it, so that Spark
    ends the others, whatever they wait for. A worker that is done, or was disconnected by the failure of another, waits
    at the barrier: rank 0 serves the rendezvous until then.

    Args:
        context: The BarrierTaskContext of the worker.
        spec: The script.
        start: How often the group was restarted.
        driver: Where the worker reports a failure.
        cores: The cores of the worker, which are its threads.
        silence_seconds: How long the script may be stopped, as by SIGSTOP, until it is lost.
    """
    from trainyard.trainer.connections.store import Store

    rank, size, host = context.partitionId(), len(context.getTaskInfos()), socket.gethostname()
    events = EventLog(spec.task_key.directory, spec.task_key.task, process_name(rank, start), rank)
    compile_privately()
    with ExitStack() as stack:
        current = CurrentPhase(is_judged=False)
        heartbeats = stack.enter_context(HeartbeatSender(driver, rank, host, current))
        termination = stack.enter_context(Termination())
        tracking = stack.enter_context(_open_tracking(spec)) if rank == 0 and spec.trackers else None
        last_output = Path(stack.enter_context(tempfile.TemporaryDirectory()), "output")
        with prefix_output(rank, last_output):
            process = stack.enter_context(script_process.run(spec.script, spec.cwd, cores, spec.grace_seconds))
            with events.span(Phase.RENDEZVOUS):
                root = checkpoint_root(spec.task_key)
                found = restore(root, process.folder, current.report_progress) if rank == 0 else None
                serving = _serve_rendezvous(context, spec, cores, start, found)
                variables, restored = stack.enter_context(serving)
                store = stack.enter_context(closing(Store(driver, STORE_TIMEOUT))) if size > 1 else None
                if store:
                    own = rendezvous.get_own_address(context)
                    listener = stack.enter_context(rendezvous.listen_as_gloo(context, own))
                    dial_others(store, rank, rendezvous.list_hosts(context), listener)
                    variables |= rendezvous.get_interface(listener)
            exchange = store if spec.checkpoints_of == "all ranks" else None
            session = stack.enter_context(
                Session(root, process.folder, restored, rank, size, exchange, events, current, tracking)
            )
            current.enter(Phase.SCRIPT)
            with events.span(Phase.SCRIPT):
                process.start(Start(spec.script, spec.arguments, variables | session.variables, rank, size, driver))
                was_ended = process.wait(_EndOfGroup(store, termination, session), silence_seconds)
            current.enter(Phase.CHECKPOINT)
            unstored = _store_last(session, process, was_ended, spec.grace_seconds)
        outcome = _build_outcome(process, rank, size, host, was_ended, termination.requested, last_output)
        if unstored and (outcome.error is None or session.has_failed):
            outcome = replace(unstored, rank=rank, host=host, ended_at=time.time())
        elif outcome.result:
            outcome = replace(outcome, result=outcome.result | session.result)
        outcome = replace(outcome, ended_at=outcome.ended_at + heartbeats.clock.behind_ns / 1e9)
        if outcome.error:
            heartbeats.report_failure(outcome)
        events.close()
        if store:
            _end_others(store, size, outcome, spec.grace_seconds)
        if tracking:
            tracking.finish(outcome.error is None)
        if outcome.is_cause:
            raise TrainyardError(outcome.describe_failure(size))
        context.barrier()
    return outcome


def _open_tracking(spec: ScriptSpec) -> BackgroundTracking:
    """Return what sends metrics to the trackers of a script."""
    params = spec.model_dump(include={"script", "arguments", "workers"})
    return BackgroundTracking(open_trackers(spec, params))


def _store_last(session: Session, process: ScriptProcess, was_ended: bool, grace_seconds: float) -> Outcome | None:
    """Store the last files of a script that has ended; return the failure of this, if it is one."""
    is_done = process.has_complete_files and not was_ended
    try:
        session.finish(process.has_complete_files, math.inf if is_done else grace_seconds)
    except TrainyardError as error:
        return build_failure(0, error, Offset())
    return None


class _EndOfGroup:
    """Whether the script of a worker has to end: the worker got a SIGTERM, or another one ends the group.

    Args:
        store: The store of the group; None of a single worker.
        termination: Whether this worker has received SIGTERM.
        session: What records the reports of the script meanwhile.
    """

    def __init__(self, store: Any, termination: Termination, session: Session) -> None:
        self._store, self._termination, self._checked_at = store, termination, time.monotonic()
        self._session = session

    def __call__(self) -> bool:
        self._session.record_reports()
        if self._termination.requested or self._session.has_failed:
            return True
        if self._store is None or time.monotonic() < self._checked_at + ASK_SECONDS:
            return False
        self._checked_at = time.monotonic()
        try:
            return bool(self._store.check([ENDING]))
        except UnavailableError:
            return True  # the driver has ended, and so does the group


def _build_outcome(
    process: ScriptProcess, rank: int, size: int, host: str, was_ended: bool, got_sigterm: bool, last_output: Path
) -> Outcome:
    """Return how a worker ended, by its own clock."""
    text = last_output.read_text(errors="replace").strip() if last_output.exists() else ""
    failure = process.find_failure(text)
    if got_sigterm:
        failure = Outcome(rank, host, 0, "terminated", error="the worker received SIGTERM, and the script has ended")
    elif was_ended:
        failure = Outcome(rank, host, 0, "disconnected", error="the script was ended, because another worker failed")
    if failure is None:
        return Outcome(rank, host, time.time(), result={"workers": size})
    return replace(failure, rank=rank, host=host, ended_at=time.time())


def _end_others(store: Any, size: int, outcome: Outcome, grace_seconds: float) -> None:
    """End the scripts of the other workers, if that of this one has failed, and wait until they have ended."""
    deadline = time.monotonic() + 2 * grace_seconds + 2 * ASK_SECONDS  # they save their state, then it is stored
    with suppress(UnavailableError):
        store.add(ENDED, 1)
        if not outcome.error:
            return
        store.set(ENDING, "")
        while outcome.is_cause and store.add(ENDED, 0) < size and time.monotonic() < deadline:
            time.sleep(ASK_SECONDS / 5)


@contextmanager
def _serve_rendezvous(
    context: Any, spec: ScriptSpec, cores: int, start: int, restored: Restored | None
) -> Iterator[tuple[dict[str, str], Restored]]:
    """Yield the variables by which the script connects to the other workers, and what rank 0 has restored.

    Rank 0 serves the rendezvous of torch meanwhile, and that of Horovod if it is installed.
    """
    from trainyard.trainer.strategies import horovod

    rank, host = context.partitionId(), rendezvous.get_own_address(context)
    hosts = context.allGather(_get_locality(context, host))
    store, addresses = None, dict[str, Any]()
    with ExitStack() as stack:
        if rank == 0 and len(context.getTaskInfos()) == 1:
            with rendezvous.listen_for((), host) as listener:
                addresses["torch"] = f"{host}:{listener.getsockname()[1]}"
        elif rank == 0:
            store = rendezvous.serve_store(host, rendezvous.list_other_hosts(context))
            addresses["torch"] = f"{host}:{store.port}"
        if rank == 0 and importlib.util.find_spec("horovod"):
            addresses["horovod"] = stack.enter_context(horovod.serve(hosts, host))
        addresses["restored"] = restored
        addresses = json.loads(context.allGather(json.dumps(addresses))[0])
        variables = build_environment(spec, hosts, rank, addresses["torch"], cores, start)
        if "horovod" in addresses:
            variables |= horovod.build_environment(hosts, rank, addresses["horovod"])
        yield variables, Restored(*addresses["restored"])


def _get_locality(context: Any, host: str) -> str:
    """Return what the workers with one sequence of local ranks have in common: they select GPUs by their local ranks.

    A container that YARN assigned GPUs to sees these only; otherwise all workers of a host see the same GPUs.
    """
    return os.environ.get("CONTAINER_ID", host) if "gpu" in context.resources() else host
