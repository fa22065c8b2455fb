"""The averages of gradients over workers, whatever the backward passes of a step reach on each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer.run.gradients import buckets
from trainyard.trainer.run.gradients.reduction import GradientReducer
from trainyard.trainer.world import World

Gradients = list[Tensor | None]
Pass = Callable[[nn.ModuleList, Tensor, int, int], Tensor]
"""Computes the loss of some networks, inputs, a step and a rank."""
SMALL = 33 * 32 * 4
"""The size of a bucket in these tests: that of the weight and the bias of a layer, so that there are four."""


def all_networks(networks: nn.ModuleList, x: Tensor, *_: int) -> Tensor:
    return networks[1](networks[0](x)).square().mean()


def the_first_on_rank_0(networks: nn.ModuleList, x: Tensor, _: int, rank: int) -> Tensor:
    return (networks[0] if rank == 0 else networks[1])(x).square().mean()


def in_turn(networks: nn.ModuleList, x: Tensor, step: int, _: int) -> Tensor:
    return networks[step % 2](x).square().mean()


def shared_in_nested_passes(networks: nn.ModuleList, x: Tensor, *_: int) -> Tensor:
    """A backward pass within the backward pass adds to gradients that are complete already."""
    inner = checkpoint(networks[1], checkpoint(networks[0], x, use_reentrant=True), use_reentrant=True)
    return networks[1](networks[0](inner)).square().mean()  # type: ignore[no-any-return]


def of_the_gradient(networks: nn.ModuleList, x: Tensor, *_: int) -> Tensor:
    loss = networks[1](networks[0](x)).square().mean()
    gradients = torch.autograd.grad(loss, list(networks[0].parameters()), create_graph=True)
    return loss + torch.stack([gradient.square().sum() for gradient in gradients]).sum()


def with_a_frozen_network(networks: nn.ModuleList, x: Tensor, step: int, _: int) -> Tensor:
    networks[1].requires_grad_(step % 3 == 2)
    return networks[1](networks[0](x)).square().mean()


PASSES: dict[str, tuple[Pass, ...]] = {
    "all networks": (all_networks,),
    "the first on rank 0": (the_first_on_rank_0,),
    "in turn": (in_turn,),
    "shared in nested passes": (shared_in_nested_passes,),
    "of the gradient": (of_the_gradient,),
    "with a frozen network": (with_a_frozen_network,),
    "several": (all_networks, in_turn, the_first_on_rank_0),
}


def build_networks(dtype: torch.dtype = torch.float32) -> nn.ModuleList:
    torch.manual_seed(0)
    layers = [[nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh()] for _ in range(2)]
    return nn.ModuleList([nn.Sequential(*part) for part in layers]).to(dtype)


def average(world: World, kind: str, dtype: torch.dtype = torch.float32) -> tuple[list[Gradients], list[Gradients]]:
    """Return the gradients that a reducer averages in each step, and the means of those of all workers."""
    buckets.FIRST_BUCKET_BYTES = buckets.BUCKET_BYTES = SMALL
    networks, alone = build_networks(dtype), build_networks(dtype)
    reducer = GradientReducer(world, lambda *_: None)
    reducer.add(networks)
    averaged, expected = [], []
    for step in range(6):
        x = torch.randn(4, 32, generator=torch.Generator().manual_seed(10 * step + world.rank)).to(dtype)
        x.requires_grad_()
        passes = PASSES[kind][: 1 + step % 3]
        for compute in passes:
            reducer.begin(step, overlaps=True)
            loss = compute(networks, x, step, world.rank)
            loss.backward()
            total = reducer.finish(loss.detach())
            assert total.item() == pytest.approx(sum(world.gather(loss.item())), rel=1e-2)
            before = [parameter.grad for parameter in alone.parameters()]
            alone.zero_grad()
            compute(alone, x, step, world.rank).backward()
            for parameter, earlier, own in zip(alone.parameters(), before, read(alone), strict=True):
                gathered = [value for value in world.gather(own) if value is not None]
                mean = torch.stack(gathered).sum(0) / world.size if gathered else None
                parameter.grad = earlier if mean is None else mean if earlier is None else earlier + mean
        reducer.end_step(step)
        averaged.append(read(networks))
        expected.append(read(alone))
        networks.zero_grad()
        alone.zero_grad()
    reducer.end_epoch(5, is_left=False)
    return averaged, expected


def read(networks: nn.Module) -> Gradients:
    return [None if parameter.grad is None else parameter.grad.detach().clone() for parameter in networks.parameters()]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(2) as workers:
        yield workers


@pytest.mark.ranks
@pytest.mark.parametrize("kind", PASSES)
def test_gradients_are_the_means_over_workers(workers: Workers, kind: str) -> None:
    for averaged, expected in workers(average, kind):
        for step, means in zip(averaged, expected, strict=True):
            for gradient, mean in zip(step, means, strict=True):
                assert (gradient is None) == (mean is None)
                if gradient is not None and mean is not None:
                    torch.testing.assert_close(gradient, mean)


@pytest.mark.ranks
def test_gradients_of_other_types_are_averaged(workers: Workers) -> None:
    for averaged, expected in workers(average, "several", torch.bfloat16):
        for step, means in zip(averaged, expected, strict=True):
            torch.testing.assert_close(step, means, rtol=0.05, atol=0.05)


def measure_early(world: World) -> list[float]:
    """Return the share of the gradients that is sent before the backward pass has ended, by step."""
    buckets.FIRST_BUCKET_BYTES = buckets.BUCKET_BYTES = SMALL
    networks, reducer, shares = build_networks(), GradientReducer(world, lambda *_: None), []
    reducer.add(networks)
    for step in range(3):
        before = reducer.bytes_sent
        reducer.begin(step, overlaps=True)
        loss = all_networks(networks, torch.ones(4, 32))
        loss.backward()
        early = reducer.bytes_sent - before
        reducer.finish(loss.detach())
        reducer.end_step(step)
        shares.append(early / (reducer.bytes_sent - before))
    return shares


@pytest.mark.ranks
def test_all_buckets_but_the_last_are_sent_during_the_backward_pass(workers: Workers) -> None:
    """From the second step on: the first one finds out which parameters have gradients."""
    assert workers(measure_early) == [[0, 0.75, 0.75]] * 2


def ignore_rows(world: World) -> list[float]:
    """Return the gradients of steps in which rank 1 has no rows, and a loss that is not finite."""
    network, reducer, gradients = nn.Linear(2, 1, bias=False), GradientReducer(world, lambda *_: None), []
    reducer.add(network)
    for step in range(3):
        network.zero_grad()
        reducer.begin(step, overlaps=world.is_main)
        if world.is_main:
            network(torch.ones(1, 2)).mean().backward()
        else:
            with reducer.without_trace():
                (network(torch.ones(1, 2)) * math.nan).mean().backward()
        reducer.finish(torch.tensor(0.0))
        reducer.end_step(step)
        assert network.weight.grad is not None
        gradients += network.weight.grad[0].tolist()
    return gradients


@pytest.mark.ranks
def test_a_worker_without_rows_sends_zeros(workers: Workers) -> None:
    assert workers(ignore_rows) == [[0.5] * 6] * 2


def send_sparse(world: World) -> str:
    reducer, weight = GradientReducer(world, lambda *_: None), nn.Module()
    weight.values = nn.Parameter(torch.ones(3, 2))
    reducer.add(weight)
    reducer.begin(0, overlaps=True)
    nn.functional.embedding(torch.tensor([1]), weight.values, sparse=True).sum().backward()
    with pytest.raises(TrainyardError) as error:
        reducer.finish(torch.tensor(0.0))
    return str(error.value)


@pytest.mark.ranks
def test_sparse_gradients_are_refused(workers: Workers) -> None:
    for error in workers(send_sparse):
        assert "cannot process the sparse gradient of a parameter of shape [3, 2]. Write sparse=False" in error


def differ(world: World, passes: list[int], leaves_after: int) -> str:
    """Train with another number of backward passes on rank 1 in the last step; return the error."""
    network, reducer = build_networks(), GradientReducer(world, lambda *_: None)
    reducer.add(network)
    with pytest.raises(TrainyardError) as error:
        for step in range(3):
            for _ in range(passes[world.rank] if step == 2 else passes[0]):
                reducer.begin(step, overlaps=True)
                loss = all_networks(network, torch.ones(4, 32))
                loss.backward()
                reducer.finish(loss.detach())
            reducer.end_step(step)
            if world.rank == 1 and step == leaves_after:
                break
        reducer.end_epoch(step, is_left=step < 2)
    return str(error.value)


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("passes", "leaves_after", "message"),
    [
        ([2, 1], 3, "rank 0 is at backward pass 2 of step 3, and rank 1 has no further one in step 3"),
        ([2, 3], 3, "rank 0 has ended the epoch after step 3, and rank 1 is at backward pass 3 of step 3"),
        ([2, 0], 3, "rank 0 is at backward pass 1 of step 3, and rank 1 has none in step 3"),
        ([2, 2], 1, "rank 0 is at backward pass 1 of step 3, and rank 1 has left the loop after step 2"),
    ],
)
def test_workers_that_differ_are_an_error_on_each(
    workers: Workers, passes: list[int], leaves_after: int, message: str
) -> None:
    for error in workers(differ, passes, leaves_after):
        assert message in error


def fail(world: World, ends_step: bool) -> str:
    """Catch an exception that a backward pass raises after it has sent buckets, and go on; return the error."""
    buckets.FIRST_BUCKET_BYTES = buckets.BUCKET_BYTES = SMALL
    network, reducer = build_networks(), GradientReducer(world, lambda *_: None)
    reducer.add(network)
    for step in range(2):
        reducer.begin(step, overlaps=True)
        loss = all_networks(network, torch.ones(4, 32))
        loss.backward()
        reducer.finish(loss.detach())
        reducer.end_step(step)

    def interrupt(_: Tensor) -> None:
        raise ValueError("out of luck")

    network[0][0].weight.register_hook(interrupt)
    reducer.begin(2, overlaps=True)
    with pytest.raises(ValueError, match="out of luck"):
        all_networks(network, torch.ones(4, 32)).backward()
    with pytest.raises(TrainyardError) as error:
        reducer.end_step(2) if ends_step else reducer.begin(2, overlaps=True)
    return str(error.value)


@pytest.mark.ranks
@pytest.mark.parametrize("ends_step", [False, True])
def test_a_loop_that_catches_the_error_of_a_backward_pass_cannot_go_on(workers: Workers, ends_step: bool) -> None:
    """Other workers wait for the buckets that it did not send."""
    for error in workers(fail, ends_step):
        assert "batch.backward() has raised an exception before" in error
