"""Rules that map texts of YARN and Spark to a sentence with the cause and the fix. Pure functions.

The first rule whose pattern matches is used, so specific patterns come before general ones.
`tests/plugins/diagnosis/test_rules.py` has the texts, as real daemons wrote them.
"""

from __future__ import annotations

import re

from trainyard.diagnosis import application_master, executors, node_runtime
from trainyard.diagnosis.diagnosis import Diagnosis, Rule, sentence
from trainyard.diagnosis.memory import (
    gpu_out_of_memory,
    heap_exhausted,
    physical_memory_kill,
    unmeasured_memory_kill,
    virtual_memory_kill,
)
from trainyard.planning.plan import Plan

_USED = r"(?P<used>[\d.]+) (?P<used_unit>[KMGT]?B) of (?P<limit>[\d.]+) (?P<limit_unit>[KMGT]?B)"


def lost_node(match: re.Match[str], plan: Plan) -> Diagnosis:
    """Name the node, if the text does, and say what happens next."""
    node = f"Node {match['node']}" if match["node"] else "A node"
    return Diagnosis(
        f"{node} was lost with the containers on it: its NodeManager stopped or could not be reached. A worker group "
        "restarts by itself, if its driver runs on another node; otherwise the task's next attempt (retries=) submits "
        "the job again, and training resumes from its last checkpoint. If it recurs, see `yarn node -list -all` and "
        "the node's NodeManager log."
    )


_TABLE: list[tuple[str, Rule]] = [
    (
        rf"containerID=(?P<container>\w+)\] is running .*?beyond the 'PHYSICAL' memory limit.*?usage: {_USED}",
        physical_memory_kill,
    ),
    (rf"exceeding physical memory limits\. {_USED} physical memory used", physical_memory_kill),
    (
        r"containerID=(?P<container>\w+)\] is running .*?beyond the 'VIRTUAL' memory limit.*?physical memory used; "
        rf"{_USED}",
        virtual_memory_kill,
    ),
    (rf"exceeding virtual memory limits\. {_USED} virtual memory used", virtual_memory_kill),
    (r"CUDA out of memory\. Tried to allocate (?P<asked>[\d.]+ \w+)", gpu_out_of_memory),
    (
        r"Expected to have finished reduction in the prior iteration before starting a new one",
        sentence(
            "Some parameters of the model get no gradient in a step, and this strategy waits for the gradients of all. "
            "If they never get one, name them in the recipe's freeze=; otherwise write strategy={{'name': 'allreduce', "
            "'find_unused_parameters': True}}."
        ),
    ),
    (
        r"ModuleNotFoundError: No module named '(?P<module>[^']+)'",
        sentence(
            "The Python on the node has no module {module!r}. If it is yours, put it into the DAG's folder or one "
            "above; otherwise install it on the nodes."
        ),
    ),
    (
        r"Cannot reserve additional contiguous bytes in the vectorized reader",
        sentence(
            "The rows that Spark reads from Parquet or ORC at once, 4,096 by default, do not fit into the heap. "
            "Write conf={{'spark.sql.parquet.columnarReaderBatchSize': '16'}}, or the setting of this name of "
            "spark.sql.orc. If that does not suffice, write a larger heap in memory=Memory(...)."
        ),
    ),
    (r"java\.lang\.OutOfMemoryError: (?P<what>Java heap space|GC overhead limit exceeded)", heap_exhausted),
    (
        r"(?:exit status: |exitCode: |Exit status: |Exit code from container (?P<container>\w+) is : )-104\b",
        unmeasured_memory_kill,
    ),
    (
        r"(?:[Ee]xit (?:status|code): |exitCode: )-102\b|(?:was|been) preempted|[Pp]reempted by scheduler",
        sentence(
            "YARN took containers back for another queue (preemption). Submit to a queue with a larger guaranteed "
            "capacity than {plan.queue}, or one that is not preempted "
            "(yarn.scheduler.capacity.<queue>.disable_preemption)."
        ),
    ),
    (
        r"(?:on host:? (?P<node>[\w.-]*\w)\. )?"
        r"(?:(?:[Ee]xit (?:status|code): |exitCode: )-100\b|released on a \*lost\* node)",
        lost_node,
    ),
    (
        r"(?:[Ee]xit (?:status|code): |exitCode: )-101\b|local-dirs (?:are|have turned) bad|No space left on device",
        sentence(
            "A node has no usable disk left for containers (yarn.nodemanager.local-dirs and log-dirs): free space "
            "there, or have the node decommissioned."
        ),
    ),
    (
        r"above the max threshold \((?P<limit>\d+) MB\)",
        sentence(
            "A container is larger than the largest that this cluster grants, {limit} MB "
            "(yarn.scheduler.maximum-allocation-mb). Write a smaller memory= or driver_memory=."
        ),
    ),
    (
        r"Requested more memory than configured max|Requested resource type=\[memory-mb\]",
        sentence(
            "A container is larger than the largest that this cluster grants (yarn.scheduler.maximum-allocation-mb). "
            "Write a smaller memory= or driver_memory=."
        ),
    ),
    (
        r"queue=(?P<queue>\S+) doesn't have permission to access all labels in resource request\. "
        r"labelExpression of resource request=(?P<label>\S+?)(?:\. |$)",
        sentence(
            "Queue {queue!r} may not use node label {label!r}, or there is no such label. Write another node_label= or "
            "queue= in placement=Placement(...), or have the label added to the queue's accessible-node-labels."
        ),
    ),
    (
        r"greater than maximum allowed allocation\. Requested resource type=\[(?P<type>[^\]]+)\]",
        sentence(
            "A container requests more {type} than any node of the cluster offers. Write a smaller gpus_per_worker=, "
            "workers_per_container= or gpus_per_executor=."
        ),
    ),
    (
        r"to unknown queue: (?P<queue>\S+)",
        sentence("There is no queue {queue!r}. Write another as placement=Placement(queue=...), or in the connection."),
    ),
    (
        r"User (?P<user>\S+) does not have permission to submit \S+ to queue (?P<queue>\S+)",
        sentence(
            "User {user!r} may not submit to queue {queue!r}. Write another as placement=Placement(queue=...), or have "
            "the user added to the queue's acl_submit_applications."
        ),
    ),
    (
        r"Permission denied: user=(?P<user>[^,\s]+), access=(?P<access>\w+), inode=\"(?P<path>[^\"]+)\"",
        sentence(
            "HDFS refuses {access} on {path} to user {user!r}. Have the directory created for that user, or write "
            "another storage in the Trainyard connection."
        ),
    ),
    (
        r"The DiskSpace quota of (?P<path>[^\n]+?) is exceeded: quota = \d+ B = (?P<limit>[^\n]+?) but",
        sentence(
            "The HDFS directory {path} may have {limit}, counting each replica of a block, and a write exceeded that. "
            "Remove what is not needed, for example with `trainyard gc`, or have the quota raised (hdfs dfsadmin "
            "-setSpaceQuota)."
        ),
    ),
    (
        r"The NameSpace quota \(directories and files\) of directory (?P<path>[^\n]+?) is exceeded: "
        r"quota=(?P<limit>\d+)",
        sentence(
            "The HDFS directory {path} may have {limit} files and directories, and a write exceeded that. Remove what "
            "is not needed, for example with `trainyard gc`, or have the quota raised (hdfs dfsadmin -setQuota)."
        ),
    ),
    (
        r"Name node is in safe mode",
        sentence("HDFS is in safe mode: its NameNode waits for DataNodes, or has no disk space left. Try again later."),
    ),
    (
        r"could only be written to \d+ of the \d+ minReplication nodes",
        sentence("No DataNode of HDFS accepts a block: none runs, or their disks are full."),
    ),
    (
        r"waiting for resources to be assigned for AM",
        sentence(
            "The driver's container was never granted: its partition is full. Put a CapacitySensor before this task."
        ),
    ),
    (
        r"was killed by user (?P<user>\S+)",
        sentence("User {user!r} killed the application."),
    ),
    (
        r"(?:[Ee]xit (?:status|code): |exitCode: )137\b",
        sentence(
            "A process was killed with SIGKILL, not by YARN: usually the node ran out of memory. Write a larger "
            "memory=, or have yarn.nodemanager.resource.memory-mb lowered."
        ),
    ),
    (
        r"(?:[Ee]xit (?:status|code): |exitCode: )127\b|python\S*: No such file or directory",
        sentence(
            "The Python that the job runs with is not on the node. Install it there, or name another with "
            "spark.pyspark.python."
        ),
    ),
]


def _compile(*tables: list[tuple[str, Rule]]) -> list[tuple[re.Pattern[str], Rule]]:
    return [(re.compile(pattern, re.DOTALL), rule) for table in tables for pattern, rule in table]


RULES = _compile(node_runtime.BY_TEXT, application_master.BY_TEXT, executors.BY_TEXT, _TABLE)
EXIT_CODE_RULES = _compile(application_master.BY_EXIT_CODE)
