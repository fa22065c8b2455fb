"""Checkpoints are written so that torch reads them too, whatever their tensors are."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as torch_dcp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainyard.trainer.checkpointing import dcp
from trainyard.trainer.checkpointing.saver import Saver

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.int64, torch.uint8,
    torch.bool, torch.complex64,
)  # fmt: skip
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda tensor: tensor,
    "transposed": lambda tensor: tensor.transpose(0, -1),
    "every second": lambda tensor: tensor[::2],
    "one row": lambda tensor: tensor[:1],
    "expanded": lambda tensor: tensor[:1].expand(3 * len(tensor[:1]), *tensor.shape[1:]),
}


def build(dtype: torch.dtype, shape: tuple[int, ...], layout: str) -> Tensor:
    values = torch.randint(0, 100, shape).to(dtype)
    return LAYOUTS[layout](values) if shape else values


def save(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Write a checkpoint, and return its files."""
    return Saver(None).save(state, dcp.Writer(str(folder), True, lambda: None))


def load(folder: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint as torch reads it."""
    loaded = {name: torch.zeros_like(value) if isinstance(value, Tensor) else None for name, value in state.items()}
    torch_dcp.load(loaded, storage_reader=torch_dcp.FileSystemReader(folder), no_dist=True)
    return loaded


def is_same(one: Tensor, other: Tensor) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tolist() == other.tolist()


tensors = st.builds(
    build, st.sampled_from(DTYPES), st.lists(st.integers(0, 7), max_size=4).map(tuple), st.sampled_from(sorted(LAYOUTS))
)


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(tensors, max_size=4))
def test_torch_reads_what_was_written(tmp_path_factory: pytest.TempPathFactory, values: list[Tensor]) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    state = {f"tensor {number}": value for number, value in enumerate(values)} | {"epoch": 3}
    files = save(folder, state)
    loaded = load(folder, state)
    assert all(is_same(loaded[name], value) for name, value in state.items() if isinstance(value, Tensor))
    assert loaded["epoch"] == 3
    for name, file in files.items():
        content = (folder / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.bytes, file.sha256)


def test_a_large_state_is_written_to_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp, "FILE_BYTES", 10_000)
    state = {f"tensor {number}": torch.full((2000,), number) for number in range(20)}
    files = save(tmp_path, state)
    assert [name for name in sorted(files) if name.endswith(".distcp")] == sorted(f"__0_{n}.distcp" for n in range(20))
    assert all(is_same(value, state[name]) for name, value in load(tmp_path, state).items())


def test_a_tensor_that_is_written_in_pieces_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcp, "_WRITTEN_BYTES", 1000)
    monkeypatch.setattr(dcp, "_SMALL_BYTES", 500)
    state = {"large": torch.arange(1237.0), "small": torch.arange(3.0), "empty": torch.empty(0)}
    save(tmp_path, state)
    assert all(is_same(value, state[name]) for name, value in load(tmp_path, state).items())


def test_pieces_are_few_and_each_is_progress(tmp_path: Path) -> None:
    """Each piece costs the training thread a wait for Python's lock."""
    progress: list[int] = []
    state = {f"weight {number}": torch.zeros(1000) for number in range(100)} | {"large": torch.zeros(10 << 20)}
    Saver(None).save(state, dcp.Writer(str(tmp_path), True, lambda: progress.append(1)))
    assert 3 <= len(progress) <= 10, "three pieces of the large tensor, and few of all others"


def test_another_thread_saves_tensors_with_their_values_meanwhile(tmp_path: Path) -> None:
    """The values of tensors are left out of their frames, which concerns no other thread."""
    stopped = threading.Event()

    def save_checkpoints() -> int:
        count = 0
        while not stopped.is_set():
            dcp._frame_tensor.cache_clear()
            save(tmp_path / str(count), {f"{number}": torch.zeros(number) for number in range(50)})
            count += 1
        return count

    with ThreadPoolExecutor() as pool:
        saved = pool.submit(save_checkpoints)
        try:
            for number in range(200):
                torch.save(torch.full((5,), float(number)), tmp_path / "own.pt")
                assert torch.load(tmp_path / "own.pt").tolist() == [number] * 5
        finally:
            stopped.set()
        assert saved.result() > 0
