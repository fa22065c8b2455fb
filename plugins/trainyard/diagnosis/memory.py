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
"""A retry gets this much of what the killed container used."""
_GB = {"B": 1 / 1024**3, "KB": 1 / 1024**2, "MB": 1 / 1024, "GB": 1, "TB": 1024}


def remediate(plan: Plan, diagnosis: Diagnosis | None) -> tuple[Plan, str]:
    """Return the plan with the memory that an earlier attempt needed, and a line for the log.

    The plan is unchanged unless memory was the cause and `grow_memory_to` allows the larger container.
    """
    memory = diagnosis and (diagnosis.memory or diagnosis.driver_memory)
    if not diagnosis or not memory or not plan.job.grow_memory_to:
        return plan, ""
    option = "memory" if diagnosis.memory else "driver_memory"
    needed = sizing.size(memory, plan.job.operator, option).needed
    if needed > sizing.megabytes(plan.job.grow_memory_to, "grow_memory_to"):
        return (
            plan,
            f"A container of {needed} MB is needed, but grow_memory_to={plan.job.grow_memory_to!r} does not allow it.",
        )
    larger = plan.with_job(memory=memory) if diagnosis.memory else plan.with_job(driver_memory=memory)
    return larger, f"The memory was too small; now {option}=Memory(heap={memory.heap!r}, native={memory.native!r})."


def grow(memory: Memory, granted: int, used: int) -> Memory:
    """Return `memory` with more native memory, for a container that was killed with `used` of `granted` MB.

    A container is killed while its usage rises, so it needs more than it used: the larger of the two grows by `GROWTH`.
    """
    native = sizing.megabytes(memory.native, "native")
    return replace(memory, native=f"{native + max(math.ceil(max(used, granted) * GROWTH) - granted, 0)}m")


def physical_memory_kill(match: re.Match[str], plan: Plan) -> Diagnosis:
    """Diagnose a container that exceeded its physical memory, with the figures of YARN."""
    return _memory_kill(plan, _is_driver(match), _megabytes(match, "used"), _megabytes(match, "limit"))


def virtual_memory_kill(match: re.Match[str], plan: Plan) -> Diagnosis:
    """Diagnose a container that exceeded its virtual memory."""
    return Diagnosis(
        f"YARN killed {_who(_is_driver(match), plan)} for its virtual memory, {match['used']} {match['used_unit']} of "
        f"{match['limit']} {match['limit_unit']}, which torch and the JVM reserve without using it. Set "
        "yarn.nodemanager.vmem-check-enabled=false on the nodes, or raise yarn.nodemanager.vmem-pmem-ratio."
    )


def unmeasured_memory_kill(match: re.Match[str], plan: Plan) -> Diagnosis:
    """Diagnose a memory kill of which YARN reports only the exit status."""
    driver = _is_driver(match)
    granted = _sizes(plan)[0 if driver else 1].granted
    return _memory_kill(plan, driver, granted, granted)


def _memory_kill(plan: Plan, driver: bool, used: int, granted: int) -> Diagnosis:
    option = "driver_memory" if driver else "memory"
    before: Memory = getattr(plan.job, option)
    after = grow(_as_granted(before, granted, plan), granted, used)
    sentence = (
        f"YARN killed {_who(driver, plan)}: it used {used} MB of the {granted} MB of its container, in which the heap "
        f"is {before.heap} and all else is native memory. Write {option}=Memory(heap={after.heap!r}, "
        f"native={after.native!r})."
    )
    return Diagnosis(sentence, **{option: after})


def _as_granted(memory: Memory, granted: int, plan: Plan) -> Memory:
    """Return `memory` as of the container of `granted` MB, which an earlier attempt may have enlarged."""
    extra = granted - sizing.size(memory, plan.job.operator, "memory").needed
    native = sizing.megabytes(memory.native, "native")
    return replace(memory, native=f"{native + max(extra, 0)}m")


def gpu_out_of_memory(match: re.Match[str], plan: Plan) -> Diagnosis:
    """Diagnose an allocation that did not fit into a GPU's memory."""
    smaller = (
        "Write a smaller batch_size, or micro_batches=2 or more for the same batch in parts, or precision='bfloat16'."
    )
    if "script" in plan.job.spec:
        smaller = "Use smaller batches in the script."
    return Diagnosis(
        f"A training step did not fit into a GPU's memory: CUDA could not allocate {match['asked']} more. {smaller}"
    )


def heap_exhausted(match: re.Match[str], plan: Plan) -> Diagnosis:
    """Diagnose a JVM that ran out of heap."""
    return Diagnosis(
        f"A JVM ran out of heap ({match['what'].strip()}). The driver has {plan.job.driver_memory.heap}, an executor "
        f"{plan.job.memory.heap}: write a larger heap in driver_memory=Memory(...) if rows are collected, else in "
        "memory=Memory(...)."
    )


def _is_driver(match: re.Match[str]) -> bool:
    """Return whether the container in the text is the application master, which is the first one."""
    container = match.groupdict().get("container")
    return bool(container and container.endswith("_000001"))


def _who(driver: bool, plan: Plan) -> str:
    return "the driver" if driver else "a worker" if plan.job.workers else "an executor"


def _sizes(plan: Plan) -> tuple[Size, Size]:
    driver = sizing.driver_size(plan.job.driver_memory, plan.job.operator)
    return driver, sizing.size(plan.job.memory, plan.job.operator, "memory")


def _megabytes(match: re.Match[str], name: str) -> int:
    return math.ceil(float(match[name]) * _GB[match[f"{name}_unit"]] * 1024)
