"""List columns are converted to tensors and back without a copy."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainyard.etl.datasource import tensors

MATRICES = hnp.arrays(
    st.sampled_from([np.int8, np.int32, np.int64, np.float32, np.float64]),
    st.tuples(st.integers(1, 20), st.integers(1, 9)),
    elements=st.integers(-100, 100),
)


def make_lists(matrix: np.ndarray) -> pa.ListArray:
    rows, size = matrix.shape
    return pa.ListArray.from_arrays(np.arange(0, rows * size + 1, size, dtype=np.int32), matrix.ravel())


@given(MATRICES, st.data())
def test_a_slice_of_lists_is_unchanged_after_conversion_to_tensors_and_back(matrix, data):
    start = data.draw(st.integers(0, len(matrix) - 1))
    column = make_lists(matrix).slice(start)
    size = matrix.shape[1]
    kind = pa.fixed_shape_tensor(column.type.value_type, (size, 1))
    tensor = tensors.to_tensor(tensors.to_storage(column, size), kind)
    assert (tensors.flatten(tensor.storage).to_numpy() == matrix[start:].ravel()).all()
    assert tensors.to_list(tensor, column.type).equals(column)


@given(MATRICES)
def test_a_tensor_shares_the_memory_of_its_list(matrix):
    column = make_lists(matrix)
    tensor = tensors.to_tensor(
        tensors.to_storage(column, matrix.shape[1]),
        pa.fixed_shape_tensor(column.type.value_type, (matrix.shape[1],)),
    )
    assert tensors.flatten(tensor.storage).buffers()[1].address == column.values.buffers()[1].address


@given(st.lists(st.lists(st.integers(0, 9)), min_size=1))
def test_each_row_has_its_length(rows):
    assert tensors.get_lengths(pa.array(rows, pa.list_(pa.int32()))).tolist() == [len(row) for row in rows]
