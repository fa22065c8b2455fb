"""How large a container must be, and the Spark settings that make it so. Pure functions.

A container that YARN starts for Spark holds, by Spark's own sum (ResourceProfile, YarnAllocator),

    heap + overhead + off-heap + PySpark memory

rounded up to a multiple of yarn.scheduler.minimum-allocation-mb. All that is not the JVM's heap and
not one of the two named parts lives in the overhead: the JVM's own stacks, code and buffers (the
`jvm_overhead`), and what native libraries allocate, which Spark cannot see: torch, its tensors, Arrow
(`native`). So overhead = native + reserve, which strictly exceeds native.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from trainyard.errors import TrainyardError

MIN_JVM_OVERHEAD_MB = 384
JVM_OVERHEAD_FRACTION = 0.1
_UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt])i?b?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What one container needs, in Spark's notation: "512m", "4g", "1.5g".

    :param heap: the JVM's heap
    :param native: what libraries allocate outside it, in all Python processes of the container
    :param off_heap: Spark's own memory outside the heap (`spark.memory.offHeap.size`)
    :param pyspark: the limit that Spark sets its Python workers (`spark.executor.pyspark.memory`)
    :param jvm_overhead: what the JVM needs beside its heap; the larger of 384m and a tenth of the heap
    """

    heap: str = "1g"
    native: str = "0m"
    off_heap: str = "0m"
    pyspark: str = "0m"
    jvm_overhead: str | None = None


@dataclass(frozen=True)
class Limits:
    """What a cluster grants, in MB: multiples of `step`, at most `largest`; `source` says who sets the latter."""

    step: int
    largest: int
    source: str


@dataclass(frozen=True)
class Size:
    """The parts of one container in MB, and what YARN grants for their sum."""

    heap: int
    native: int
    off_heap: int
    pyspark: int
    jvm_overhead: int
    granted: int

    @property
    def overhead(self) -> int:
        return self.native + self.jvm_overhead

    @property
    def needed(self) -> int:
        return self.heap + self.overhead + self.off_heap + self.pyspark


def megabytes(text: str, where: str) -> int:
    """A size such as "4g" in MB, rounded up. Raises TrainyardError naming `where` it stands."""
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise TrainyardError(f'{where}={text!r} is no size; write a number and a unit: "512m", "4g".')
    return math.ceil(float(found[1]) * _UNITS[found[2].lower()])


def size(memory: Memory, operator: str, role: str, limits: Limits | None = None) -> Size:
    """The container for `memory`: its parts, and what `limits` round it to.

    Without limits (the cluster is not known yet) the sum itself. Raises TrainyardError for a part
    that is no size, and for a sum that the cluster can never grant.
    """
    given = {name: getattr(memory, name) for name in ("heap", "native", "off_heap", "pyspark", "jvm_overhead")}
    parts = {name: megabytes(text, f"{operator}: {role}.{name}") for name, text in given.items() if text is not None}
    if parts["heap"] == 0:
        raise TrainyardError(f'{operator}: {role}.heap={memory.heap!r} leaves the JVM nothing; write "512m" or more.')
    if parts.get("jvm_overhead") == 0:
        raise TrainyardError(
            f"{operator}: {role}.jvm_overhead={memory.jvm_overhead!r}: the overhead must be more than native, or the container "
            f'is killed; write jvm_overhead="{MIN_JVM_OVERHEAD_MB}m", or leave it out.'
        )
    parts.setdefault("jvm_overhead", max(MIN_JVM_OVERHEAD_MB, math.ceil(parts["heap"] * JVM_OVERHEAD_FRACTION)))
    needed = Size(**parts, granted=0)
    if limits is None:
        return replace(needed, granted=needed.needed)
    found = replace(needed, granted=_rounded_up(needed.needed, limits.step))
    if found.granted > limits.largest:
        raise TrainyardError(_too_large(found, operator, role, limits))
    return found


def fill(needed: Size, node: int, operator: str, limits: Limits) -> Size:
    """`needed` grown so that on a node of `node` MB nothing else fits beside it: what is left over is native.

    Raises TrainyardError when the largest container leaves room for another one.
    """
    granted = node // limits.step * limits.step
    if granted > limits.largest:
        raise TrainyardError(
            f"{operator}: isolation='whole_node' cannot hold a node of {_shown(node)}: the largest container is "
            f"{_shown(limits.largest)} ({limits.source}), so others fit beside it. Raise that limit to the node's "
            "memory, or choose another isolation."
        )
    return replace(needed, native=needed.native + granted - needed.needed, granted=granted)


def driver_settings(found: Size) -> dict[str, str]:
    """Spark's settings for the driver, which in cluster mode is the application master."""
    return {"spark.driver.memory": f"{found.heap}m", "spark.driver.memoryOverhead": f"{found.overhead}m"}


def executor_settings(found: Size) -> dict[str, str]:
    """Spark's settings for each executor."""
    settings = {"spark.executor.memory": f"{found.heap}m", "spark.executor.memoryOverhead": f"{found.overhead}m"}
    if found.off_heap:
        settings |= {"spark.memory.offHeap.enabled": "true", "spark.memory.offHeap.size": f"{found.off_heap}m"}
    if found.pyspark:
        settings["spark.executor.pyspark.memory"] = f"{found.pyspark}m"
    return settings


def _rounded_up(needed: int, step: int) -> int:
    return math.ceil(needed / step) * step


def _too_large(found: Size, operator: str, role: str, limits: Limits) -> str:
    parts = [("heap", found.heap), ("native", found.native), ("JVM overhead", found.jvm_overhead)]
    parts += [("off-heap", found.off_heap), ("PySpark", found.pyspark)]
    total = " + ".join(f"{name} {_shown(value)}" for name, value in parts if value)
    fitting = limits.largest // limits.step * limits.step
    return (
        f"{operator}: memory does not fit. One {role} container needs {_shown(found.granted)} ({total} = "
        f"{_shown(found.needed)}, rounded up to a multiple of {_shown(limits.step)} by "
        f"yarn.scheduler.minimum-allocation-mb); the largest container is {_shown(limits.largest)} "
        f"({limits.source}). {_advice(found, fitting)}"
    )


def _advice(found: Size, fitting: int) -> str:
    over = found.needed - fitting
    for name in ("native", "heap"):
        part = getattr(found, name)
        if part - over >= max(part // 4, 256):
            return f'Use {name}="{part - over}m", or fewer ranks in a container.'
    return "Ask for larger containers, or give the work to more of them."


def _shown(megabytes: int) -> str:
    return f"{megabytes / 1024:.3g} GB" if megabytes >= 1024 else f"{megabytes} MB"
