"""From what YARN and Spark said of a failure to one sentence, and to the setting that mends it. Pure functions.

Each rule knows one text of the daemons. The first that finds its text wins: the more telling a text, the
further up it stands. tests/plugins/test_diagnosis.py holds the texts, as real daemons wrote them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from trainyard import sizing
from trainyard.plan import Plan
from trainyard.sizing import Memory, Size

GROWTH = 1.25
_GB = {"B": 1 / 1024**3, "KB": 1 / 1024**2, "MB": 1 / 1024, "GB": 1, "TB": 1024}
_USED = r"(?P<used>[\d.]+) (?P<used_unit>[KMGT]?B) of (?P<limit>[\d.]+) (?P<limit_unit>[KMGT]?B)"


@dataclass(frozen=True)
class Diagnosis:
    """What happened, in a sentence or two; what a next try needs in memory, where that is what was lacking."""

    sentence: str
    memory: Memory | None = None
    driver_memory: Memory | None = None


Rule = Callable[[re.Match[str], Plan], Diagnosis]


def diagnose(plan: Plan, *texts: str) -> Diagnosis | None:
    """What `texts` tell of the failure of `plan`'s application, the first of them first; None when nothing known."""
    for text in texts:
        for pattern, rule in _RULES:
            if found := pattern.search(text):
                return rule(found, plan)
    return None


def treated(plan: Plan, found: Diagnosis | None) -> tuple[Plan, str]:
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


def grown(memory: Memory, granted: int, used: int) -> Memory:
    """`memory` with as much more native memory as a container takes that held `used` of `granted` MB.

    A container is killed on its way up, so what it used is less than what it needs: a quarter is added.
    """
    native = sizing.megabytes(memory.native, "native")
    return replace(memory, native=f"{native + max(math.ceil(max(used, granted) * GROWTH) - granted, 0)}m")


def _said(sentence: str) -> Rule:
    """A sentence with the match's groups, and fields of the plan, filled in."""

    def rule(found: re.Match[str], plan: Plan) -> Diagnosis:
        return Diagnosis(sentence.format(**found.groupdict(), plan=plan))

    return rule


def _physical(found: re.Match[str], plan: Plan) -> Diagnosis:
    return _memory_kill(plan, _is_driver(found), _megabytes(found, "used"), _megabytes(found, "limit"))


def _virtual(found: re.Match[str], plan: Plan) -> Diagnosis:
    return Diagnosis(
        f"YARN killed {_who(_is_driver(found), plan)} for its virtual memory, {found['used']} {found['used_unit']} of "
        f"{found['limit']} {found['limit_unit']}, which torch and the JVM reserve without using it. Set "
        "yarn.nodemanager.vmem-check-enabled=false on the nodes, or raise yarn.nodemanager.vmem-pmem-ratio."
    )


def _unmeasured(found: re.Match[str], plan: Plan) -> Diagnosis:
    """A memory kill of which only the exit status is known."""
    driver = _is_driver(found)
    granted = _sizes(plan)[0 if driver else 1].granted
    return _memory_kill(plan, driver, granted, granted)


def _memory_kill(plan: Plan, driver: bool, used: int, granted: int) -> Diagnosis:
    option = "driver_memory" if driver else "memory"
    before: Memory = getattr(plan, option)
    after = grown(_as_granted(before, granted, plan), granted, used)
    sentence = (
        f"YARN killed {_who(driver, plan)}: it used {used} MB of the {granted} MB of its container, in which the heap "
        f"is {before.heap} and all else is native memory. Write {option}=Memory(heap={after.heap!r}, "
        f"native={after.native!r})."
    )
    return Diagnosis(sentence, **{option: after})


def _as_granted(memory: Memory, granted: int, plan: Plan) -> Memory:
    """`memory` as it was when the container had `granted` MB: an earlier try may have grown it."""
    extra = granted - sizing.size(memory, plan.operator, "memory").needed
    native = sizing.megabytes(memory.native, "native")
    return replace(memory, native=f"{native + max(extra, 0)}m")


def _gpu_memory(found: re.Match[str], plan: Plan) -> Diagnosis:
    smaller = (
        "Write a smaller batch_size, or accumulate=2 and more for the same batch in parts, or precision='bfloat16'."
    )
    if "script" in plan.spec:
        smaller = "Let the script take smaller batches."
    return Diagnosis(f"A GPU's memory did not hold a step: CUDA could not allocate {found['asked']} more. {smaller}")


def _heap(found: re.Match[str], plan: Plan) -> Diagnosis:
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


_TABLE: list[tuple[str, Rule]] = [
    (rf"containerID=(?P<container>\w+)\] is running .*?beyond the 'PHYSICAL' memory limit.*?usage: {_USED}", _physical),
    (rf"exceeding physical memory limits\. {_USED} physical memory used", _physical),
    (
        r"containerID=(?P<container>\w+)\] is running .*?beyond the 'VIRTUAL' memory limit.*?physical memory used; "
        rf"{_USED}",
        _virtual,
    ),
    (rf"exceeding virtual memory limits\. {_USED} virtual memory used", _virtual),
    (r"CUDA out of memory\. Tried to allocate (?P<asked>[\d.]+ \w+)", _gpu_memory),
    (
        r"ModuleNotFoundError: No module named '(?P<module>[^']+)'",
        _said(
            "The Python on the node lacks the module {module!r}. If it is yours, put it into the DAG folder's package; "
            "else install it on the nodes."
        ),
    ),
    (r"java\.lang\.OutOfMemoryError: (?P<what>Java heap space|GC overhead limit exceeded)", _heap),
    (r"(?:exit status: |exitCode: |Exit status: |Exit code from container (?P<container>\w+) is : )-104", _unmeasured),
    (
        r"(?:[Ee]xit (?:status|code): |exitCode: )-102|(?:was|been) preempted|[Pp]reempted by scheduler",
        _said(
            "YARN took containers back for another queue (preemption). Submit to a queue with a larger guaranteed "
            "capacity than {plan.queue}, or one that is not preempted "
            "(yarn.scheduler.capacity.<queue>.disable_preemption)."
        ),
    ),
    (
        r"(?:[Ee]xit (?:status|code): |exitCode: )-100|released on a \*lost\* node",
        _said("A node was lost with the containers on it: its NodeManager stopped or could not be reached. Try again."),
    ),
    (
        r"(?:[Ee]xit (?:status|code): |exitCode: )-101|local-dirs (?:are|have turned) bad|No space left on device",
        _said(
            "A node has no usable disk left for containers (yarn.nodemanager.local-dirs and log-dirs): free space "
            "there, or have the node decommissioned."
        ),
    ),
    (
        r"above the max threshold \((?P<limit>\d+) MB\)",
        _said(
            "A container is larger than the largest that this cluster grants, {limit} MB "
            "(yarn.scheduler.maximum-allocation-mb). Write a smaller memory= or driver_memory=."
        ),
    ),
    (
        r"Requested more memory than configured max|Requested resource type=\[memory-mb\]",
        _said(
            "A container is larger than the largest that this cluster grants (yarn.scheduler.maximum-allocation-mb). "
            "Write a smaller memory= or driver_memory=."
        ),
    ),
    (
        r"queue=(?P<queue>\S+) doesn't have permission to access all labels in resource request\. "
        r"labelExpression of resource request=(?P<label>\S+?)(?:\. |$)",
        _said(
            "Queue {queue!r} may not use node label {label!r}, or there is no such label. Write another node_label= or "
            "queue= in placement=Placement(...), or have the label added to the queue's accessible-node-labels."
        ),
    ),
    (
        r"greater than maximum allowed allocation\. Requested resource type=\[(?P<type>[^\]]+)\]",
        _said(
            "A container asks for more {type} than any node of the cluster may give. Write a smaller gpus_per_worker= "
            "or ranks_per_container=."
        ),
    ),
    (
        r"to unknown queue: (?P<queue>\S+)",
        _said("There is no queue {queue!r}. Write another as placement=Placement(queue=...), or in the connection."),
    ),
    (
        r"User (?P<user>\S+) does not have permission to submit \S+ to queue (?P<queue>\S+)",
        _said(
            "User {user!r} may not submit to queue {queue!r}. Write another as placement=Placement(queue=...), or have "
            "the user added to the queue's acl_submit_applications."
        ),
    ),
    (
        r"Permission denied: user=(?P<user>[^,\s]+), access=(?P<access>\w+), inode=\"(?P<path>[^\"]+)\"",
        _said(
            "HDFS refuses {access} on {path} to user {user!r}. Have the directory created for that user, or store "
            "elsewhere: the trainyard connection's storage."
        ),
    ),
    (
        r"Name node is in safe mode",
        _said("HDFS is in safe mode: its NameNode waits for DataNodes, or has no disk space left. Try again later."),
    ),
    (
        r"could only be written to \d+ of the \d+ minReplication nodes",
        _said("HDFS has no DataNode that takes a block: none runs, or their disks are full."),
    ),
    (
        r"waiting for resources to be assigned for AM",
        _said("The driver's container was never granted: the partition it asks for is full. A capacity sensor waits."),
    ),
    (
        r"was killed by user (?P<user>\S+)",
        _said("User {user!r} killed the application."),
    ),
    (
        r"(?:[Ee]xit (?:status|code): |exitCode: )137",
        _said(
            "A process was killed with SIGKILL, not by YARN: most often the node's own memory ran out. Write a larger "
            "memory=, or have yarn.nodemanager.resource.memory-mb lowered."
        ),
    ),
    (
        r"(?:[Ee]xit (?:status|code): |exitCode: )127|python\S*: No such file or directory",
        _said(
            "The Python that the job runs with is not on the node. Install it there, or name another with "
            "spark.pyspark.python."
        ),
    ),
]
_RULES = [(re.compile(pattern, re.DOTALL), rule) for pattern, rule in _TABLE]
