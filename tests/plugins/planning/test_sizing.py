"""The size of containers: sums, rounding, and errors for sizes that YARN cannot grant."""

from __future__ import annotations

from dataclasses import replace

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
def test_an_invalid_size_is_refused_with_the_name_of_its_field(text: str) -> None:
    with pytest.raises(
        TrainyardError, match=r'TrainOperator \'t\': executor.heap=.* is not a valid size; use .*"512m"'
    ):
        sizing.size(Memory(heap=text), "TrainOperator 't'", "executor")


def test_four_gigabytes_of_heap_five_native_and_one_extra_fit_eleven() -> None:
    size = sizing.size(Memory(heap="4g", native="5g", jvm_overhead="1g"), "TrainOperator 't'", "executor", YARN)
    assert sizing.executor_settings(size) == {
        "spark.executor.memory": "4096m",
        "spark.executor.memoryOverhead": "6144m",
    }
    assert size.granted == 10 * 1024
    assert size.overhead > size.native


def test_off_heap_and_pyspark_memory_are_settings_of_their_own() -> None:
    size = sizing.size(Memory(heap="1g", off_heap="256m", pyspark="300m"), "E 'e'", "executor", YARN)
    assert sizing.executor_settings(size) == {
        "spark.executor.memory": "1024m",
        "spark.executor.memoryOverhead": "384m",
        "spark.memory.offHeap.enabled": "true",
        "spark.memory.offHeap.size": "256m",
        "spark.executor.pyspark.memory": "300m",
    }
    assert size.granted == 2048


@pytest.mark.parametrize(("heap", "granted"), [("512m", 1024), ("1000m", 1536)])
def test_the_container_size_equals_what_yarn_grants(heap: str, granted: int) -> None:
    assert sizing.size(Memory(heap=heap), "E 'e'", "executor", YARN).granted == granted


def test_a_container_above_the_maximum_is_refused_with_a_size_that_fits() -> None:
    with pytest.raises(TrainyardError) as refused:
        sizing.size(Memory(heap="4g", native="6g", pyspark="1g"), "TrainOperator 'train'", "executor", YARN)
    assert str(refused.value) == (
        "TrainOperator 'train': memory does not fit. One executor container needs 11.5 GB (heap 4 GB + native 6 GB + "
        "JVM overhead 410 MB + PySpark 1 GB = 11.4 GB, rounded up to a multiple of 512 MB by "
        "yarn.scheduler.minimum-allocation-mb); the largest container is 11 GB (yarn.scheduler.maximum-allocation-mb, "
        'read from rm1:8088). Use native="5734m", or fewer workers in a container.'
    )
    assert sizing.size(Memory(heap="4g", native="5734m", pyspark="1g"), "T 't'", "executor", YARN).granted == 11 * 1024


def test_an_overhead_that_only_equals_native_is_refused() -> None:
    with pytest.raises(TrainyardError, match="the overhead must be more than native"):
        sizing.size(Memory(native="1g", jvm_overhead="0m"), "T 't'", "executor", YARN)


@given(memories, limits)
def test_the_granted_size_covers_all_parts_and_is_a_multiple_of_the_increment(memory: Memory, limits: Limits) -> None:
    try:
        size = sizing.size(memory, "T 't'", "executor", limits)
    except TrainyardError:
        return
    assert size.needed <= size.granted <= limits.largest
    assert size.granted % limits.step == 0 and size.granted - size.needed < limits.step
    assert size.overhead > size.native


@given(memories, limits, st.data())
def test_nothing_fits_beside_a_container_that_fills_its_node(
    memory: Memory, limits: Limits, data: st.DataObject
) -> None:
    try:
        needed = sizing.size(memory, "T 't'", "executor", limits)
    except TrainyardError:
        return
    node = data.draw(st.integers(needed.granted, limits.largest))
    size = sizing.fill(needed, node, "T 't'", limits)
    assert needed.needed <= size.needed == size.granted <= node
    assert node - size.granted < limits.step
    assert size.native >= needed.native


@pytest.mark.parametrize(("node", "granted"), [(5119, 4608), (5120, 5120), (5200, 5120)])
def test_a_container_fills_its_node_up_to_a_multiple_of_the_increment(node: int, granted: int) -> None:
    limits = Limits(step=512, largest=5120, source="test")
    size = sizing.fill(sizing.size(Memory(native="100m"), "T 't'", "memory", limits), node, "T 't'", limits)
    assert (size.granted, size.native) == (granted, granted - 1024 - 384)


def test_a_node_larger_than_the_largest_container_cannot_be_filled() -> None:
    needed = sizing.size(Memory(), "T 't'", "executor", YARN)
    with pytest.raises(TrainyardError) as refused:
        sizing.fill(needed, 16 * 1024, "T 't'", YARN)
    assert str(refused.value) == (
        "T 't': isolation='whole_node' cannot fill a node of 16 GB: the largest container is 11 GB "
        "(yarn.scheduler.maximum-allocation-mb, read from rm1:8088), so other containers fit beside it. Raise that "
        "limit to the node's memory, or choose another isolation."
    )


def test_before_the_cluster_is_known_a_container_has_the_sum_of_its_parts() -> None:
    size = sizing.size(Memory(heap="2g", native="100m", off_heap="10m", pyspark="1m"), "T 't'", "memory")
    assert size.granted == size.needed == 2048 + 100 + 384 + 10 + 1


def test_a_jvm_without_heap_is_refused() -> None:
    with pytest.raises(TrainyardError) as refused:
        sizing.size(Memory(heap="0m"), "TrainOperator 't'", "memory")
    assert str(refused.value) == ("TrainOperator 't': memory.heap='0m' leaves the JVM no heap; write \"512m\" or more.")
    assert sizing.size(Memory(heap="1m"), "T 't'", "memory").heap == 1


def test_the_driver_has_settings_of_its_own() -> None:
    assert sizing.driver_settings(sizing.size(Memory(heap="1g", native="1m"), "T 't'", "driver_memory")) == {
        "spark.driver.memory": "1024m",
        "spark.driver.memoryOverhead": "385m",
    }


def test_the_error_for_a_large_container_lists_each_part() -> None:
    with pytest.raises(TrainyardError, match=r"\(heap 1 GB \+ JVM overhead 384 MB \+ off-heap 2 MB \+ PySpark 3 MB ="):
        sizing.size(Memory(off_heap="2m", pyspark="3m"), "T 't'", "memory", Limits(1, 1024, "test"))


LARGER = "Have larger containers allowed, or use more workers."


@pytest.mark.parametrize(
    ("heap", "native", "largest", "advice"),
    [
        ("1g", "1g", 1664, 'Use native="256m", or fewer workers in a container.'),
        ("1g", "1g", 1663, LARGER),
        ("1g", "2050m", 1920, 'Use native="512m", or fewer workers in a container.'),
        ("1g", "2050m", 1919, LARGER),
        ("2g", "100m", 2048, 'Use heap="1564m", or fewer workers in a container.'),
    ],
)
def test_the_advice_leaves_a_part_a_quarter_of_its_size_and_256_mb(
    heap: str, native: str, largest: int, advice: str
) -> None:
    with pytest.raises(TrainyardError) as refused:
        sizing.size(Memory(heap=heap, native=native), "T 't'", "memory", Limits(1, largest, "test"))
    assert str(refused.value).endswith(f" (test). {advice}")


@pytest.mark.parametrize("part", ["off_heap", "pyspark"])
def test_memory_that_spark_does_not_request_for_the_driver_is_refused(part: str) -> None:
    with pytest.raises(TrainyardError) as refused:
        sizing.driver_size(Memory(**{part: "512m"}), "ExportOperator 'e'")
    assert str(refused.value) == (
        f"ExportOperator 'e': driver_memory.{part}='512m' is not valid: Spark requests heap and overhead for the "
        "driver. Write native='512m' instead."
    )


@given(memories)
def test_all_that_is_counted_for_a_driver_is_requested(memory: Memory) -> None:
    size = sizing.driver_size(replace(memory, off_heap="0m", pyspark="0m"), "E 'e'")
    requested = sizing.driver_settings(size)
    assert size.needed == sum(sizing.megabytes(value, "setting") for value in requested.values())


@given(st.integers(834, 200_000), st.sampled_from([("1g", "512m"), ("1g", "1536m"), ("512m", "2g"), ("1g", "0m")]))
def test_memory_in_all_is_that_of_the_container(total: int, default: tuple[str, str]) -> None:
    heap, native = default
    size = sizing.size(sizing.split(f"{total}m", Memory(heap=heap, native=native), "memory"), "E", "memory")
    assert size.needed == total
    assert size.heap >= sizing.MIN_HEAP_MB


def test_memory_in_all_is_shared_between_heap_and_libraries_as_by_default() -> None:
    assert sizing.split("8g", Memory(heap="512m", native="2g"), "memory") == Memory(heap="1561m", native="6247m")
    assert sizing.split("40g", Memory(heap="1g", native="1g"), "memory") == Memory(heap="19504m", native="19505m")


@pytest.mark.parametrize("total", ["833m", "0g"])
def test_memory_in_all_that_no_jvm_starts_with_is_refused(total: str) -> None:
    with pytest.raises(TrainyardError, match=rf"^memory='{total}' is too small: a JVM takes 834 MB; write \"1g\" or"):
        sizing.split(total, Memory(), "memory")
