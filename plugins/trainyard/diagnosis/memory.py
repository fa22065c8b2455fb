"""Diagnose memory kills, and compute the memory that a retry needs. Pure functions."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from trainyard.diagnosis.diagnosis import Diagnosis
from trainyard.planning import sizing
from trainyard.planning.plan import Plan
from trainyard.planning.sizing import Memory, Size

GROWTH = 1.25


_GB = {"B": 1 / 1024**3, "KB": 1 / 1024**2, "MB": 1 / 1024, "GB": 1, "TB": 1024}


def remediate(plan: Plan, found: Diagnosis | None) -> tuple[Plan, str]:
    """`plan` with the memory that a try before it lacked, and what is to be said of that.

    As it was, unless it was memory and `grow_memory_to` allows for as much.
    """
    lacking = found and (found.memory or found.driver_memory)
    if not found or not lacking or not plan.grow_memory_to:
        return plan, ""
    option = "memory" if found.memory else "driver_memory"
    needed = sizing.size(lacking, plan.operator, option).needed
    if needed > sizing.megabytes(plan.grow_memory_to, "grow_memory_to"):
        return plan, f"It lacked memory, but {needed} MB is more than grow_memory_to={plan.grow_memory_to!r} allows."
    changed = replace(plan, memory=found.memory or plan.memory, driver_memory=found.driver_memory or plan.driver_memory)
    return changed, f"It lacked memory; now {option}=Memory(heap={lacking.heap!r}, native={lacking.native!r})."


def grow(memory: Memory, granted: int, used: int) -> Memory:
    """`memory` with as much more native memory as a container takes that held `used` of `granted` MB.

    A container is killed on its way up, so what it used is less than what it needs: a quarter is added.
    """
    native = sizing.megabytes(memory.native, "native")
    return replace(memory, native=f"{native + max(math.ceil(max(used, granted) * GROWTH) - granted, 0)}m")


def physical_memory_kill(found: re.Match[str], plan: Plan) -> Diagnosis:
    return _memory_kill(plan, _is_driver(found), _megabytes(found, "used"), _megabytes(found, "limit"))


def virtual_memory_kill(found: re.Match[str], plan: Plan) -> Diagnosis:
    return Diagnosis(
        f"YARN killed {_who(_is_driver(found), plan)} for its virtual memory, {found['used']} {found['used_unit']} of "
        f"{found['limit']} {found['limit_unit']}, which torch and the JVM reserve without using it. Set "
        "yarn.nodemanager.vmem-check-enabled=false on the nodes, or raise yarn.nodemanager.vmem-pmem-ratio."
    )


def unmeasured_memory_kill(found: re.Match[str], plan: Plan) -> Diagnosis:
    """A memory kill of which only the exit status is known."""
    driver = _is_driver(found)
    granted = _sizes(plan)[0 if driver else 1].granted
    return _memory_kill(plan, driver, granted, granted)


def _memory_kill(plan: Plan, driver: bool, used: int, granted: int) -> Diagnosis:
    option = "driver_memory" if driver else "memory"
    before: Memory = getattr(plan, option)
    after = grow(_as_granted(before, granted, plan), granted, used)
    sentence = (
        f"YARN killed {_who(driver, plan)}: it used {used} MB of the {granted} MB of its container, in which the heap "
        f"is {before.heap} and all else is native memory. Write {option}=Memory(heap={after.heap!r}, "
        f"native={after.native!r})."
    )
    return Diagnosis(sentence, **{option: after})


def _as_granted(memory: Memory, granted: int, plan: Plan) -> Memory:
    """`memory` as it was when the container had `granted` MB: an earlier try may have grow it."""
    extra = granted - sizing.size(memory, plan.operator, "memory").needed
    native = sizing.megabytes(memory.native, "native")
    return replace(memory, native=f"{native + max(extra, 0)}m")


def gpu_out_of_memory(found: re.Match[str], plan: Plan) -> Diagnosis:
    smaller = (
        "Write a smaller batch_size, or micro_batches=2 and more for the same batch in parts, or precision='bfloat16'."
    )
    if "script" in plan.spec:
        smaller = "Let the script take smaller batches."
    return Diagnosis(f"A GPU's memory did not hold a step: CUDA could not allocate {found['asked']} more. {smaller}")


def heap_exhausted(found: re.Match[str], plan: Plan) -> Diagnosis:
    return Diagnosis(
        f"A JVM ran out of heap ({found['what'].strip()}). The driver has {plan.driver_memory.heap}, an executor "
        f"{plan.memory.heap}: write a larger heap in driver_memory=Memory(...) if rows are collected, else in "
        "memory=Memory(...)."
    )


def _is_driver(found: re.Match[str]) -> bool:
    """Whether the container in the text is the application master, which is the first."""
    container = found.groupdict().get("container")
    return bool(container and container.endswith("_000001"))


def _who(driver: bool, plan: Plan) -> str:
    return "the driver" if driver else "a rank" if plan.workers else "an executor"


def _sizes(plan: Plan) -> tuple[Size, Size]:
    driver = sizing.size(plan.driver_memory, plan.operator, "driver_memory")
    return driver, sizing.size(plan.memory, plan.operator, "memory")


def _megabytes(found: re.Match[str], name: str) -> int:
    return math.ceil(float(found[name]) * _GB[found[f"{name}_unit"]] * 1024)
