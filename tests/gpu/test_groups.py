"""Groups of workers on the device, by NCCL or gloo: they learn what one worker learns, and end when a worker fails.

On a node with one GPU, two workers share it, and communicate by gloo. Tests of the process group, of DDP and of FSDP
start a group of one there, which uses NCCL.
"""

from __future__ import annotations

import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tests.gpu import group, recipes
from tests.gpu.group import Task
from trainyard.schemas.datasets.manifest import read_current
from trainyard.schemas.runs import checkpoint as index
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.specs.strategies import Allreduce as AllreduceOptions
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec
from trainyard.trainer.checkpointing.staging import Staging, copy_tensors
from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.connections.process_group import end_process_group
from trainyard.trainer.connections.rendezvous import join_group
from trainyard.trainer.group import worker
from trainyard.trainer.group.group_server import GroupServer
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.measuring.device_times import CudaStream, DeviceTimes
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.strategies import ddp, fsdp
from trainyard.trainer.strategies.allreduce import Allreduce
from trainyard.trainer.world import World

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.ranks]

STRATEGIES: dict[str, dict[str, Any]] = {
    "allreduce": {"name": "allreduce"},
    "fp16": {"name": "allreduce", "compression": "fp16"},
    "powersgd": {"name": "allreduce", "compression": "powersgd", "powersgd_start": 2},
    "averaging": {"name": "averaging"},
    "threshold": {"name": "threshold", "density": 0.05},
    "diloco": {"name": "diloco", "inner_steps": 4},
    "fsdp": {"name": "fsdp"},
}
EXACT = ("allreduce", "fsdp")


def train(task: Task | None, batches: str, folder: str, strategy: dict[str, Any]) -> tuple[list[float], set[str]]:
    """Return the losses, and the names of the phases."""
    world = join_group(task, task.driver, timedelta(minutes=2), 1) if task else World()
    fitted = fit(
        f"{recipes.__name__}:mlp", dataset=batches, model=f"{folder}/model", world=world, strategy=strategy, epochs=4,
        batch_size=48, checkpoints=f"{folder}/checkpoints",
    )  # fmt: skip
    if task:
        end_process_group(abort=False)
    losses = [epoch[name] for epoch in fitted.history.epochs for name in ("loss", "validation_loss")]
    return losses, set(fitted.phase_seconds[0].seconds)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_group_learns_what_one_worker_learns(device: str, batches: str, tmp_path: Path, name: str) -> None:
    size = group.count_workers(device, name)
    results = group.run(device, size, train, batches, str(tmp_path / "group"), STRATEGIES[name])
    assert all(losses == results[0][0] for losses, _ in results)
    losses, phases = results[0]
    assert losses[-1] < 0.5 * losses[1]
    assert {"data wait", "forward", "backward", "optimizer", "checkpoint"} <= phases
    assert ("wait for communication" in phases) == (size > 1 and name != "fsdp")
    if name in EXACT:
        alone, _ = train(None, batches, str(tmp_path / "alone"), {"name": "allreduce"})
        assert losses == pytest.approx(alone, rel=1e-2, abs=1e-3)


def start_group_of_one(task: Task) -> World:
    world = join_group(task, task.driver, timedelta(minutes=2), 1)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    dist.init_process_group(world.backend, store=store, rank=0, world_size=1)
    return world


def build_step(world: World) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8))
    return network.to(world.device), torch.randn(256, 64, device=world.device)


def reduce_by_ddp(task: Task) -> tuple[str, bool, dict[str, float]]:
    """Return the backend, whether DDP's gradients are those of the network, and the phases of some steps."""
    world = start_group_of_one(task)
    phases = Phases(None)
    if world.device.type == "cuda":
        phases.device_times = DeviceTimes(CudaStream(world.device))
    network, x = build_step(world)
    network(x).square().mean().backward()
    expected = [parameter.grad.clone() for parameter in network.parameters() if parameter.grad is not None]
    network.zero_grad()
    with closing(Allreduce(AllreduceOptions(), world)) as strategy:
        wrapped = ddp.wrap(network, world, strategy._reduce, phases.on_communication, 0.5)
        for _ in phases.measure_data_wait(iter(range(3))):
            network.zero_grad()
            with phases.measure(Phase.BACKWARD):
                wrapped(x).square().mean().backward()
    phases.drain()
    same = all(
        torch.allclose(parameter.grad, gradient, rtol=1e-3, atol=1e-6)
        for parameter, gradient in zip(network.parameters(), expected, strict=True)
        if parameter.grad is not None
    )
    backend = dist.get_backend()
    end_process_group(abort=False)
    return backend, same, dict(phases.totals)


def test_ddp_reduces_gradients_and_its_communication_is_timed(device: str) -> None:
    [(backend, same, seconds)] = group.run(device, 1, reduce_by_ddp)
    assert backend == ("nccl" if device == "cuda" else "gloo") and same
    assert seconds["backward"] > 0 and seconds["wait for communication"] > 0
    assert sum(seconds.values()) < 60


def shard_by_fsdp(task: Task) -> tuple[str, bool, bool, bool]:
    """Return the backend, and whether steps equal those of the network, the state is copied, and weights are restored.

    The copies are those of a checkpoint and of the best epoch.
    """
    world = start_group_of_one(task)
    plain, x = build_step(world)
    sharded, _ = build_step(world)
    mesh = init_device_mesh(world.device.type, (1,))
    for module in [*fsdp._find_blocks(sharded, ()), sharded]:
        fsdp._place(module, world)
        fully_shard(module, mesh=mesh)
    losses, optimizers = [], []
    for network in (plain, sharded):
        optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)
        for _ in range(3):
            loss = network(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
        optimizers.append(optimizer)
    model, state = get_state_dict(sharded, optimizers[1])
    staged = Staging().copy({"model": model, "optimizer": state})["model"]
    copied = all(
        isinstance(staged[name], DTensor)
        and staged[name].to_local().device.type == "cpu"
        and torch.equal(staged[name].to_local(), tensor.to_local().cpu())
        for name, tensor in model.items()
    )
    best = copy_tensors(get_model_state_dict(sharded))
    before = sharded(x).detach().clone()
    with torch.no_grad():
        for parameter in sharded.parameters():
            parameter.zero_()
    set_model_state_dict(sharded, best)
    restored = torch.equal(sharded(x), before)
    backend = dist.get_backend()
    end_process_group(abort=False)
    return backend, abs(losses[0] - losses[1]) < 1e-4 * abs(losses[0]) + 1e-6, copied, restored


def test_fsdp_steps_and_its_state_is_copied_for_a_checkpoint(device: str) -> None:
    [(backend, same, copied, restored)] = group.run(device, 1, shard_by_fsdp)
    assert backend == ("nccl" if device == "cuda" else "gloo") and same and copied and restored


def abort_a_collective(task: Task) -> float:
    """Return how long the process group took to end, with a collective behind a long kernel."""
    world = start_group_of_one(task)
    value = torch.ones(1 << 20, device=world.device)
    dist.all_reduce(value)
    if world.device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda._sleep(2_000_000_000)
    dist.all_reduce(value, async_op=True)
    began = time.perf_counter()
    end_process_group(abort=True)
    return time.perf_counter() - began


def test_a_group_ends_while_a_collective_is_in_flight(device: str) -> None:
    [seconds] = group.run(device, 1, abort_a_collective)
    assert seconds < 60


def build_spec(folder: Path, batches: str, recipe: str, workers: int, **params: Any) -> TrainSpec:
    key = TaskKey(dag_id="d", run_id="r", task_id="train", directory=str(folder / "run"))
    options = TrainOptions(epochs=2, batch_size=48, checkpoint_steps=3)
    return TrainSpec(
        task_key=key, recipe=f"{recipes.__name__}:{recipe}", recipe_params=params, dataset=batches,
        model=str(folder / "model"), workers=workers, options=options,
    )  # fmt: skip


def work(task: Task, text: str, manifest: str, address: DriverAddress) -> dict[str, Any]:
    outcome = worker.run(task, text, [manifest], "application", 0, address, 1)
    return {"rank": outcome.rank, "ended": outcome.ended, "error": outcome.error}


def test_a_worker_trains_as_on_the_cluster(device: str, batches: str, tmp_path: Path) -> None:
    """With heartbeats to the driver, events and checkpoints."""
    size = group.count_workers(device)
    spec = build_spec(tmp_path, batches, "mlp", size)
    with GroupServer("127.0.0.1") as server:
        results = group.run(device, size, work, spec.to_json(), read_current(batches).to_json(), server.address)
        training = server.monitor.get_training()
    assert results == [{"rank": rank, "ended": "done", "error": None} for rank in range(size)]
    assert training and training.epochs == 2
    assert index.list_checkpoints(f"{tmp_path}/run/checkpoints/train")
    assert (tmp_path / "run/events/train/worker 0.jsonl").exists()


def test_a_worker_that_fails_is_named_and_the_group_ends(device: str, batches: str, tmp_path: Path) -> None:
    """The failed worker ends by itself, whatever collectives are in flight, and the driver has its error by then."""
    size = group.count_workers(device)
    spec = build_spec(tmp_path, batches, "failing", size, rank=size - 1)
    with GroupServer("127.0.0.1") as server:
        results = group.run_until_failure(
            device, size, work, spec.to_json(), read_current(batches).to_json(), server.address
        )
        failures = server.monitor.get_failures()
    assert "RuntimeError: the model failed" in results[-1], results
    causes = [failure for failure in failures if failure.is_cause]
    assert [failure.rank for failure in causes] == [size - 1] and causes[0].error == "RuntimeError: the model failed"
    others = [result for result in results[:-1] if result is not None]
    assert all(result[0]["ended"] == "disconnected" for result in others), results


def test_events_of_the_loop_are_on_the_clock_of_the_host(device: str, batches: str, tmp_path: Path) -> None:
    """A GPU's times are converted: the report draws all workers on one timeline."""
    began = time.time()
    log = EventLog(str(tmp_path), "train", "worker 0")
    fit(
        f"{recipes.__name__}:mlp", dataset=batches, model=str(tmp_path / "model"), epochs=2, batch_size=50,
        phases=Phases(log),
    )  # fmt: skip
    log.flush()
    from trainyard.schemas.runs import events

    spans = [event for event in events.read(str(tmp_path)) if event["ph"] == "X"]
    assert len([span for span in spans if span["name"] == "forward"]) == 20
    assert all(began - 0.01 <= span["ts"] / 1e6 <= time.time() + 0.01 for span in spans)
