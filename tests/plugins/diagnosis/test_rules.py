"""Texts that Spark, YARN, torch and HDFS wrote, and the sentences that they become.

Those that a single container can provoke are provoked on a live cluster, in tests/cluster/test_diagnosis.py.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.plugins.clusters import group_plan
from trainyard.diagnosis.diagnose import diagnose
from trainyard.diagnosis.memory import remediate
from trainyard.planning import sizing
from trainyard.planning.sizing import Memory

AM_KILLED = (
    "AM Container for appattempt_1795290845344_0013_000001 exited with  exitCode: -104\nFailing this attempt."
    "Diagnostics: [2026-11-21 20:25:40.140]Container [pid=29489,containerID=container_1795290845344_0013_01_000001] is "
    "running 50892800B beyond the 'PHYSICAL' memory limit. Current usage: 560.5 MB of 512 MB physical memory used; "
    "3.2 GB of 1.0 GB virtual memory used. Killing container.\n"
)
WORKER_KILLED = (
    "ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Container killed by YARN for "
    "exceeding physical memory limits. 3.6 GB of 3 GB physical memory used. Consider boosting "
    "spark.executor.memoryOverhead."
)
VIRTUAL = (
    "Container [pid=1,containerID=container_1_0001_01_000002] is running 1B beyond the 'VIRTUAL' memory limit. Current "
    "usage: 400 MB of 1 GB physical memory used; 2.3 GB of 2.1 GB virtual memory used. Killing container."
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (AM_KILLED, "YARN killed the driver: it used 561 MB of the 512 MB of its container"),
        (WORKER_KILLED, "YARN killed a worker: it used 3687 MB of the 3072 MB of its container"),
        (VIRTUAL, "YARN killed a worker for its virtual memory, 2.3 GB of 2.1 GB"),
        ("Container marked as failed: container_1_02 on host: h. Exit status: -104.", "YARN killed a worker: it used"),
        ("Container marked as failed: c on host: h. Exit status: -102. Diagnostics: ", "YARN took containers back"),
        ("Container c on host: h was preempted.", "YARN took containers back for another queue (preemption)"),
        ("Exit status: -100. Diagnostics: Container released on a *lost* node", "A node was lost with the containers"),
        ("Exit status: -101. Diagnostics: 1/1 local-dirs have turned bad", "A node has no usable disk left"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of",
            "A training step did not fit into a GPU's memory: CUDA could not allocate 2.00 GiB more.",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", "A JVM ran out of heap (Java heap space)."),
        (
            "Cannot allocate containers as requested resource is greater than maximum allowed allocation. Requested "
            "resource type=[yarn.io/gpu], Requested resource=<memory:1024, vCores:1, yarn.io/gpu: 9>",
            "A container requests more yarn.io/gpu than any node of the cluster offers.",
        ),
        (
            'Permission denied: user=bob, access=WRITE, inode="/user":root:supergroup:drwxr-xr-x',
            "HDFS refuses WRITE on /user to user 'bob'.",
        ),
        ("Name node is in safe mode.\nThe reported blocks 0 needs", "HDFS is in safe mode"),
        (
            "File /x could only be written to 0 of the 1 minReplication nodes. There are 0",
            "No DataNode of HDFS accepts a block",
        ),
        (
            "waiting for resources to be assigned for AM. Details : AM Partition = gpu",
            "The driver's container was",
        ),
    ],
)
def test_a_text_of_the_daemons_becomes_a_sentence_with_the_fix(text: str, sentence: str) -> None:
    diagnosis = diagnose(group_plan(), text)
    assert diagnosis and diagnosis.sentence.startswith(sentence), diagnosis


def test_the_fix_for_a_script_names_no_option_of_recipes() -> None:
    diagnosis = diagnose(
        replace(group_plan(), spec={"script": "toy.script"}), "CUDA out of memory. Tried to allocate 2.00 GiB."
    )
    assert diagnosis and diagnosis.sentence.endswith(
        "CUDA could not allocate 2.00 GiB more. Use smaller batches in the script."
    )


def test_an_unknown_text_has_no_diagnosis() -> None:
    assert diagnose(group_plan(), "ValueError: no column y") is None


def test_the_first_recognized_text_is_used() -> None:
    diagnosis = diagnose(group_plan(), "nothing of note", AM_KILLED, "Name node is in safe mode")
    assert diagnosis and "driver" in diagnosis.sentence


def test_a_memory_kill_names_a_setting_that_is_larger_than_what_was_used() -> None:
    plan = group_plan()
    diagnosis = diagnose(plan, WORKER_KILLED)
    assert diagnosis and diagnosis.memory and diagnosis.driver_memory is None
    assert sizing.size(diagnosis.memory, "T", "memory").needed >= 3687
    assert f"native={diagnosis.memory.native!r}" in diagnosis.sentence


def test_memory_grows_up_to_grow_memory_to() -> None:
    diagnosis = diagnose(group_plan(), WORKER_KILLED)
    assert remediate(group_plan(), diagnosis) == (group_plan(), "")
    unchanged, why = remediate(replace(group_plan(), grow_memory_to="4g"), diagnosis)
    assert unchanged.memory == group_plan().memory and re.search(
        r"\d+ MB is needed, but grow_memory_to='4g' does not allow it", why
    )
    changed, why = remediate(replace(group_plan(), grow_memory_to="8g"), diagnosis)
    assert (
        diagnosis
        and changed.memory == diagnosis.memory
        and why.startswith("The memory was too small; now memory=Memory(heap=")
    )


def test_memory_that_grew_before_grows_from_its_last_size() -> None:
    once = diagnose(group_plan(), WORKER_KILLED)
    again = diagnose(group_plan(), WORKER_KILLED.replace("3.6 GB of 3 GB", "4.6 GB of 4.5 GB"))
    assert once and again and once.memory and again.memory
    first, second = (sizing.size(memory, "T", "memory").needed for memory in (once.memory, again.memory))
    assert second > 4.6 * 1024 > first or second > first
    assert again.memory == Memory(heap="512m", native=again.memory.native)
