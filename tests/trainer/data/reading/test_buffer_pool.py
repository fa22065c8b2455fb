"""Memory that is handed out once at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from trainyard.trainer.data.reading.buffer_pool import MAX_EXAMINED, BufferPool
from trainyard.trainer.data.reading.jagged import Array

SHAPE, TYPE = (8, 4), np.dtype("float32")


def address(array: Array) -> int:
    return int(array.ctypes.data)


@pytest.mark.parametrize(
    "refer",
    [
        lambda array: array,
        lambda array: array[2:5],
        lambda array: array[2:5][:, 1],
        lambda array: array.view(np.int32),
        lambda array: array.reshape(-1)[::2].reshape(4, 4).T,
        lambda array: memoryview(array)[1:],
        torch.from_numpy,
        lambda array: torch.from_numpy(array[3:]),
        lambda array: torch.from_numpy(array).split_with_sizes([3, 5])[1],
        lambda array: torch.from_numpy(array)[1].view(torch.int32),
        lambda array: {"numbers": [torch.from_numpy(array).t().numpy()[0]]},
    ],
    ids=["array", "slice", "slice of a slice", "other type", "transposed", "memoryview", "tensor", "tensor of a slice",
         "part of a tensor", "row of a tensor", "array of a tensor"],
)  # fmt: skip
def test_memory_is_not_handed_out_while_anything_refers_to_it_and_is_handed_out_afterwards(
    refer: Callable[[Array], Any],
) -> None:
    pool = BufferPool(4)
    array = pool.take(SHAPE, TYPE)
    array[:] = 7
    first, reference = address(array), refer(array)
    del array
    others = [pool.take(SHAPE, TYPE) for _ in range(3)]
    for other in others:
        other[:] = 0
    assert first not in map(address, others)
    values = reference["numbers"][0] if isinstance(reference, dict) else reference
    assert bytes(np.asarray(values).tobytes()[:4]) == np.float32(7).tobytes()
    del reference, values
    assert address(pool.take(SHAPE, TYPE)) == first


def test_memory_is_reused_for_another_shape_and_type_of_the_same_size() -> None:
    pool = BufferPool(4)
    array = pool.take((8, 4), np.dtype("float32"))
    first = address(array)
    del array
    assert address(pool.take((16,), np.dtype("int64"))) == first


def test_memory_of_another_size_is_not_handed_out() -> None:
    pool = BufferPool(4)
    array = pool.take((8,), TYPE)
    first = address(array)
    del array
    assert address(pool.take((4,), TYPE)) != first
    assert address(pool.take((8,), TYPE)) == first


def test_the_oldest_blocks_are_dropped_beyond_the_maximum() -> None:
    pool = BufferPool(2)
    arrays = [pool.take((size,), TYPE) for size in (1, 2, 3)]
    addresses = [address(array) for array in arrays]
    del arrays
    assert address(pool.take((3,), TYPE)) == addresses[2]
    assert address(pool.take((2,), TYPE)) == addresses[1]
    assert list(pool._blocks) == [12, 8], "the block of 4 bytes was dropped"


def test_memory_that_stays_in_use_does_not_keep_other_memory_from_being_reused() -> None:
    pool = BufferPool(4 * MAX_EXAMINED)
    kept = [pool.take(SHAPE, TYPE) for _ in range(2 * MAX_EXAMINED)]
    array = pool.take(SHAPE, TYPE)
    first = address(array)
    del array
    taken = [pool.take(SHAPE, TYPE) for _ in range(3)]
    assert first in map(address, taken)
    assert len({address(each) for each in (*kept, *taken)}) == len(kept) + 3


def test_a_table_with_many_columns_examines_few_blocks_for_each() -> None:
    """What is examined is counted by the references that are looked at, not by the time that it takes."""
    pool, looked = BufferPool(4 * 2000), []
    windows = [[pool.take(SHAPE, TYPE) for _ in range(2000)]]
    blocks = pool._blocks[128]
    pool._blocks[128] = deque((block, lambda array=array: looked.append(1) or array()) for block, array in blocks)
    windows.append([pool.take(SHAPE, TYPE) for _ in range(2000)])
    assert len(looked) <= 2000 * MAX_EXAMINED


def test_an_array_without_elements_takes_no_memory() -> None:
    assert BufferPool(2).take((0, 3), TYPE).shape == (0, 3)


def test_threads_never_get_the_same_memory_at_once() -> None:
    pool = BufferPool(8)

    def work(number: int) -> bool:
        for _ in range(2000):
            array = pool.take((64,), np.dtype("int64"))
            array[:] = number
            if not (torch.from_numpy(array) == number).all():
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))
