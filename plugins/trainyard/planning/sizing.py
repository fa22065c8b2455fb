"""Compute the size of containers, and the Spark settings for it. Pure functions.

The size of a container that Spark requests from YARN is (Spark's ResourceProfile and YarnAllocator)

    heap + overhead + off-heap + PySpark memory

rounded up to a multiple of yarn.scheduler.minimum-allocation-mb. The overhead has two parts: the JVM's own stacks, code
and buffers (`jvm_overhead`), and what native libraries allocate outside of Spark's control, such as torch, its tensors
and Arrow (`native`). So overhead = native + jvm_overhead, which strictly exceeds native.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from trainyard.errors import TrainyardError
from trainyard.schemas.validation.complaints import SMALLEST_MB

MIN_JVM_OVERHEAD_MB = 384
MIN_HEAP_MB = 450
"""The smallest heap that Spark starts with (`spark.testing.reservedMemory` times 1.5)."""
JVM_OVERHEAD_FRACTION = 0.1
_UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt])i?b?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory of one container, in Spark's notation: "512m", "4g", "1.5g".

    Args:
        heap: The JVM's heap.
        native: What libraries allocate outside of it, in all Python processes of the container.
        off_heap: Spark's memory outside the heap (`spark.memory.offHeap.size`), of executors.
        pyspark: The limit of Spark's Python workers (`spark.executor.pyspark.memory`), of executors.
        jvm_overhead: What the JVM needs beside its heap. By default the larger of 384m and a tenth of the heap.
    """

    heap: str = "1g"
    native: str = "0m"
    off_heap: str = "0m"
    pyspark: str = "0m"
    jvm_overhead: str | None = None


@dataclass(frozen=True)
class Limits:
    """What a cluster grants, in MB: multiples of `step`, at most `largest`, which the setting `source` limits."""

    step: int
    largest: int
    source: str


@dataclass(frozen=True)
class Size:
    """The parts of a container in MB, and what YARN grants for their sum."""

    heap: int
    native: int
    off_heap: int
    pyspark: int
    jvm_overhead: int
    granted: int

    @property
    def overhead(self) -> int:
        """Spark's memory overhead, in MB."""
        return self.native + self.jvm_overhead

    @property
    def needed(self) -> int:
        """The sum of all parts, in MB."""
        return self.heap + self.overhead + self.off_heap + self.pyspark


def megabytes(text: str, where: str) -> int:
    """Convert a size such as "4g" to MB, rounded up. Raises TrainyardError that names the option `where`."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        example = f"{text}m" if text.isdecimal() and int(text) >= SMALLEST_MB else "512m"
        raise TrainyardError(f'{where}={text!r} is not a valid size; use a number and a unit, for example "{example}".')
    return math.ceil(float(match[1]) * _UNITS[match[2].lower()])


def split(total: str, default: Memory, where: str) -> Memory:
    """Return the parts of a container's memory, heap and native as large to each other as by default.

    Args:
        total: The memory of the container in all, such as "8g".
        default: The default memory of the container.
        where: The option, for error messages.

    Raises:
        TrainyardError: The size is not valid, or too small.
    """
    available = megabytes(total, where)
    heap, native = (megabytes(text, where) for text in (default.heap, default.native))
    share = heap / (heap + native)
    parts = min(available - MIN_JVM_OVERHEAD_MB, math.floor(available / (1 + JVM_OVERHEAD_FRACTION * share)))
    heap = max(MIN_HEAP_MB, math.floor(share * parts))
    native = available - heap - max(MIN_JVM_OVERHEAD_MB, math.ceil(heap * JVM_OVERHEAD_FRACTION))
    if native < 0:
        raise TrainyardError(
            f'{where}={total!r} is too small: a JVM takes {MIN_HEAP_MB + MIN_JVM_OVERHEAD_MB} MB; write "1g" or more.'
        )
    return replace(default, heap=f"{heap}m", native=f"{native}m")


def size(memory: Memory, operator: str, role: str, limits: Limits | None = None) -> Size:
    """Compute the container for `memory`.

    Args:
        memory: The memory that the user asked for.
        operator: The operator, for error messages.
        role: The option with the memory, for error messages.
        limits: What the cluster grants. None, before the cluster is known, grants the sum itself.

    Raises:
        TrainyardError: A part is not a valid size, or the cluster can never grant the sum.
    """
    texts = {name: getattr(memory, name) for name in ("heap", "native", "off_heap", "pyspark", "jvm_overhead")}
    parts = {name: megabytes(text, f"{operator}: {role}.{name}") for name, text in texts.items() if text is not None}
    if parts["heap"] == 0:
        raise TrainyardError(f'{operator}: {role}.heap={memory.heap!r} leaves the JVM no heap; write "512m" or more.')
    if parts.get("jvm_overhead") == 0:
        raise TrainyardError(
            f"{operator}: {role}.jvm_overhead={memory.jvm_overhead!r}: the overhead must be more than native, or the "
            f'container is killed; write jvm_overhead="{MIN_JVM_OVERHEAD_MB}m", or leave it out.'
        )
    parts.setdefault("jvm_overhead", max(MIN_JVM_OVERHEAD_MB, math.ceil(parts["heap"] * JVM_OVERHEAD_FRACTION)))
    needed = Size(**parts, granted=0)
    if limits is None:
        return replace(needed, granted=needed.needed)
    container = replace(needed, granted=_rounded_up(needed.needed, limits.step))
    if container.granted > limits.largest:
        raise TrainyardError(_too_large(container, operator, role, limits))
    return container


def driver_size(memory: Memory, operator: str, limits: Limits | None = None) -> Size:
    """Compute the container for `memory` of the driver, which Spark requests as heap + overhead (Client.scala of 4.2).

    Raises:
        TrainyardError: As `size`, or a part is not requested for a driver.
    """
    for part in ("off_heap", "pyspark"):
        text = getattr(memory, part)
        if megabytes(text, f"{operator}: driver_memory.{part}"):
            raise TrainyardError(
                f"{operator}: driver_memory.{part}={text!r} is not valid: Spark requests heap and overhead for the "
                f"driver. Write native={text!r} instead."
            )
    return size(memory, operator, "driver_memory", limits)


def fill(needed: Size, node: int, operator: str, limits: Limits) -> Size:
    """Grow a container to fill a node of `node` MB; the rest becomes native memory.

    Raises:
        TrainyardError: The largest container leaves room for another one.
    """
    granted = node // limits.step * limits.step
    if granted > limits.largest:
        raise TrainyardError(
            f"{operator}: isolation='whole_node' cannot fill a node of {_shown(node)}: the largest "
            f"container is {_shown(limits.largest)} ({limits.source}), so other containers fit beside it. Raise that "
            "limit to the node's memory, or choose another isolation."
        )
    return replace(needed, native=needed.native + granted - needed.needed, granted=granted)


def driver_settings(container: Size) -> dict[str, str]:
    """Return Spark's settings for the driver, which is the application master in cluster mode."""
    return {"spark.driver.memory": f"{container.heap}m", "spark.driver.memoryOverhead": f"{container.overhead}m"}


def executor_settings(container: Size) -> dict[str, str]:
    """Return Spark's settings for each executor."""
    settings = {
        "spark.executor.memory": f"{container.heap}m",
        "spark.executor.memoryOverhead": f"{container.overhead}m",
    }
    if container.off_heap:
        settings |= {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": f"{container.off_heap}m"}
    if container.pyspark:
        settings["spark.executor.pyspark.memory"] = f"{container.pyspark}m"
    return settings


def _rounded_up(needed: int, step: int) -> int:
    return math.ceil(needed / step) * step


def _too_large(container: Size, operator: str, role: str, limits: Limits) -> str:
    parts = [("heap", container.heap), ("native", container.native), ("JVM overhead", container.jvm_overhead)]
    parts += [("off-heap", container.off_heap), ("PySpark", container.pyspark)]
    total = " + ".join(f"{name} {_shown(value)}" for name, value in parts if value)
    fitting = limits.largest // limits.step * limits.step
    return (
        f"{operator}: memory does not fit. One {role} container needs {_shown(container.granted)} ({total} = "
        f"{_shown(container.needed)}, rounded up to a multiple of {_shown(limits.step)} by "
        f"yarn.scheduler.minimum-allocation-mb); the largest container is {_shown(limits.largest)} "
        f"({limits.source}). {_advice(container, fitting)}"
    )


def _advice(container: Size, fitting: int) -> str:
    over = container.needed - fitting
    for name in ("native", "heap"):
        part = getattr(container, name)
        if part - over >= max(part // 4, 256):
            return f'Use {name}="{part - over}m", or fewer workers in a container.'
    return "Have larger containers allowed, or use more workers."


def _shown(megabytes: int) -> str:
    return f"{megabytes / 1024:.3g} GB" if megabytes >= 1024 else f"{megabytes} MB"
