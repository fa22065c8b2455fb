"""The size of containers: sums, rounding, and what is said when one can never be granted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.errors import TrainyardError
from trainyard.planning import sizing
from trainyard.planning.sizing import Limits, Memory

YARN = Limits(step=512, largest=11 * 1024, source="yarn.scheduler.maximum-allocation-mb, read from rm1:8088")
memories = st.builds(
    lambda heap, native, off_heap, pyspark: Memory(
        heap=f"{heap}m", native=f"{native}m", off_heap=f"{off_heap}m", pyspark=f"{pyspark}m"
    ),
    st.integers(1, 20_000), st.integers(0, 20_000), st.integers(0, 5_000), st.integers(0, 5_000),
)  # fmt: skip
limits = st.builds(Limits, st.integers(1, 2048), st.integers(2048, 40_000), st.just("test"))


@pytest.mark.parametrize(
    ("text", "expected"), [("512m", 512), ("4g", 4096), ("1.5g", 1536), ("1t", 1048576), ("100k", 1), ("2 GB", 2048)]
)
def test_sizes_are_read_in_sparks_units(text: str, expected: int) -> None:
    assert sizing.megabytes(text, "heap") == expected


@pytest.mark.parametrize("text", ["4", "g", "-1g", "4x", "", "1e3m"])
def test_what_is_no_size_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(TrainyardError, match=r'TrainOperator \'t\': executor.heap=.* is no size; write .*"512m"'):
        sizing.size(Memory(heap=text), "TrainOperator 't'", "executor")


def test_four_gigabytes_of_heap_five_native_and_one_extra_fit_eleven() -> None:
    found = sizing.size(Memory(heap="4g", native="5g", jvm_overhead="1g"), "TrainOperator 't'", "executor", YARN)
    assert sizing.executor_settings(found) == {
        "spark.executor.memory": "4096m",
        "spark.executor.memoryOverhead": "6144m",
    }
    assert found.granted == 10 * 1024
    assert found.overhead > found.native


def test_off_heap_and_pyspark_memory_are_settings_of_their_own() -> None:
    found = sizing.size(Memory(heap="1g", off_heap="256m", pyspark="300m"), "E 'e'", "executor", YARN)
    assert sizing.executor_settings(found) == {
        "spark.executor.memory": "1024m",
        "spark.executor.memoryOverhead": "384m",
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": "256m",
        "spark.executor.pyspark.memory": "300m",
    }
    assert found.granted == 2048


@pytest.mark.parametrize(("heap", "granted"), [("512m", 1024), ("1000m", 1536)])
def test_the_container_is_what_yarn_was_seen_to_grant(heap: str, granted: int) -> None:
    assert sizing.size(Memory(heap=heap), "E 'e'", "executor", YARN).granted == granted


def test_a_container_that_can_never_be_is_refused_with_figures_and_a_size_that_fits() -> None:
    with pytest.raises(TrainyardError) as refused:
        sizing.size(Memory(heap="4g", native="6g", pyspark="1g"), "TrainOperator 'train'", "executor", YARN)
    assert str(refused.value) == (
        "TrainOperator 'train': memory does not fit. One executor container needs 11.5 GB (heap 4 GB + native 6 GB + "
        "JVM overhead 410 MB + PySpark 1 GB = 11.4 GB, rounded up to a multiple of 512 MB by "
        "yarn.scheduler.minimum-allocation-mb); the largest container is 11 GB (yarn.scheduler.maximum-allocation-mb, "
        'read from rm1:8088). Use native="5734m", or fewer ranks in a container.'
    )
    assert sizing.size(Memory(heap="4g", native="5734m", pyspark="1g"), "T 't'", "executor", YARN).granted == 11 * 1024


def test_an_overhead_that_only_equals_native_is_refused() -> None:
    with pytest.raises(TrainyardError, match="the overhead must be more than native"):
        sizing.size(Memory(native="1g", jvm_overhead="0m"), "T 't'", "executor", YARN)


@given(memories, limits)
def test_what_is_granted_holds_all_parts_and_is_a_multiple_of_the_step(memory: Memory, limits: Limits) -> None:
    try:
        found = sizing.size(memory, "T 't'", "executor", limits)
    except TrainyardError:
        return
    assert found.needed <= found.granted <= limits.largest
    assert found.granted % limits.step == 0 and found.granted - found.needed < limits.step
    assert found.overhead > found.native


@given(memories, limits, st.data())
def test_nothing_fits_beside_a_container_that_fills_its_node(
    memory: Memory, limits: Limits, data: st.DataObject
) -> None:
    try:
        needed = sizing.size(memory, "T 't'", "executor", limits)
    except TrainyardError:
        return
    node = data.draw(st.integers(needed.granted, limits.largest))
    found = sizing.fill(needed, node, "T 't'", limits)
    assert needed.needed <= found.needed == found.granted <= node
    assert node - found.granted < limits.step
    assert found.native >= needed.native


def test_a_node_larger_than_the_largest_container_cannot_be_filled() -> None:
    needed = sizing.size(Memory(), "T 't'", "executor", YARN)
    with pytest.raises(TrainyardError, match="cannot hold a node of 16 GB: the largest container is 11"):
        sizing.fill(needed, 16 * 1024, "T 't'", YARN)
