"""States that are saved one after the other: what the first one plans is used again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as torch_dcp
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from tests.trainer.workers import Workers
from trainyard.schemas.runs.checkpoint import File
from trainyard.trainer.checkpointing import saver as saver_module
from trainyard.trainer.checkpointing.dcp import Planner, Reader, Writer
from trainyard.trainer.checkpointing.saver import Saver
from trainyard.trainer.world import World


def save(saver: Saver, folder: Path, state: dict[str, Any]) -> dict[str, File]:
    return saver.save(state, Writer(str(folder), True, lambda: None))


def load(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Return a state of these names and shapes."""
    loaded = {name: torch.zeros_like(value) if isinstance(value, Tensor) else None for name, value in state.items()}
    torch_dcp.load(loaded, storage_reader=Reader(str(folder), lambda: None), planner=Planner(), no_dist=True)
    return loaded


def build(step: float, width: int = 3) -> dict[str, Any]:
    return {"weight": torch.full((2, width), step), "bias": torch.full((width,), -step), "epoch": f"{step:g} of 9"}


def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) if isinstance(value, Tensor) else value == other[name]
        for name, value in one.items()
    )


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of values of each plan that is created."""
    numbers: list[int] = []
    create = saver_module._Planner.create_local_plan

    def count(planner: Any) -> Any:
        plan = create(planner)
        numbers.append(len(plan.items))
        return plan

    monkeypatch.setattr(saver_module._Planner, "create_local_plan", count)
    return numbers


def test_states_with_the_same_names_and_shapes_are_planned_once(tmp_path: Path, plans: list[int]) -> None:
    saver = Saver(None)
    for number in range(12):
        save(saver, tmp_path / str(number), build(number))
    assert plans == [3]
    assert all(is_same(load(tmp_path / str(n), build(n)), build(n)) for n in range(12)), "also the longer text"


@pytest.mark.parametrize("other", [build(2, width=4), build(2) | {"more": torch.ones(2)}, {"weight": torch.ones(2, 3)}])
def test_a_state_of_another_structure_is_planned_again(tmp_path: Path, plans: list[int], other: dict[str, Any]) -> None:
    saver = Saver(None)
    for number, state in enumerate((build(1), other, build(3))):
        save(saver, tmp_path / str(number), state)
        assert is_same(load(tmp_path / str(number), state), state)
    assert plans == [3, len(other), 3]


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), min_size=1), min_size=2, max_size=5))
def test_every_state_is_loaded_as_it_was_saved(
    tmp_path_factory: pytest.TempPathFactory, states: list[dict[str, int]]
) -> None:
    """Of any sequence of states, some of which have names and shapes in common."""
    saver, folder = Saver(None), tmp_path_factory.mktemp("states")
    for number, sizes in enumerate(states):
        state: dict[str, Any] = {name: torch.rand(size) for name, size in sizes.items()} | {"number": number}
        save(saver, folder / str(number), state)
        assert is_same(load(folder / str(number), state), state)


def build_sharded(world: World, step: float) -> dict[str, Any]:
    """Return rows that are sharded over the workers, a tensor that all have, and one of each."""
    mesh = init_device_mesh("cpu", (world.size,))
    rows = distribute_tensor(torch.full((5, 2), step), mesh, [Shard(0)])
    return {"rows": rows, "all": torch.full((3,), step), f"rank {world.rank}": torch.full((world.rank + 1,), step)}


def save_sharded(world: World, folder: str, failing: int) -> list[str]:
    """Save four states, of which a worker cannot write one, and return the files and errors."""
    saver, results = Saver(dist.new_group(backend="gloo")), []
    for number in range(4):
        writer = Writer(f"{folder}/{number}", True, lambda: None)
        if number == failing and world.is_main is False:
            writer.write_data = _refuse  # type: ignore[method-assign]
        try:
            results.append(" ".join(sorted(saver.save(build_sharded(world, number), writer))))
        except BaseException as error:  # torch's CheckpointException is not an Exception
            results.append(str(error).splitlines()[-1])
    return results


def _refuse(*_: Any) -> Any:
    raise OSError("the disk is full")


@pytest.mark.ranks
@pytest.mark.parametrize("failing", [0, 1, pytest.param(2, marks=pytest.mark.full)])
def test_an_error_of_a_worker_is_raised_by_all_and_the_next_state_is_whole(tmp_path: Path, failing: int) -> None:
    with Workers(2) as workers:
        results = workers(save_sharded, str(tmp_path), failing)
    assert all("the disk is full" in own[failing] for own in results)
    for number in {0, 1, 2, 3} - {failing}:
        assert results[0][number] == ".metadata __0_0.distcp __1_0.distcp metadata.pt" and results[1][number] == ""
        state = {"rows": torch.full((5, 2), 1.0 * number), "all": torch.full((3,), 1.0 * number)}
        state |= {f"rank {rank}": torch.full((rank + 1,), 1.0 * number) for rank in range(2)}
        assert is_same(load(tmp_path / str(number), state), state)


def save_shrinking(world: World, folder: str) -> None:
    """Save two states; of the second one, rank 1 has nothing to write."""
    saver = Saver(dist.new_group(backend="gloo"))
    first, second = torch.zeros(100), torch.ones(100)
    for number, state in enumerate(({"a": first, "b": first}, {"b": second})):
        saver.save(state, Writer(f"{folder}/{number}", True, lambda: None))


@pytest.mark.ranks
def test_a_worker_may_have_nothing_to_write_anymore(tmp_path: Path) -> None:
    with Workers(2) as workers:
        workers(save_shrinking, str(tmp_path))
    assert is_same(load(tmp_path / "1", {"b": torch.ones(100)}), {"b": torch.ones(100)})
