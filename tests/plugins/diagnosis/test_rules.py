"""Texts that Spark, YARN, torch and HDFS wrote, and the sentences that they become.

Those that a single container can provoke are provoked on a live cluster, in tests/cluster/test_diagnosis.py.
"""

from __future__ import annotations

import math

import pytest

from tests.plugins.snapshots import group_plan
from trainyard.diagnosis.diagnose import diagnose
from trainyard.diagnosis.diagnosis import Diagnosis
from trainyard.diagnosis.memory import remediate
from trainyard.errors import TrainyardError
from trainyard.planning import sizing
from trainyard.planning.plan import Plan
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
        (
            "AM Container for appattempt_1_0001_000001 exited with  exitCode: -100\nFailing this attempt.Diagnostics: "
            "Container released on a *lost* node",
            "A node was lost with the containers on it: its NodeManager stopped or could not be reached. A worker",
        ),
        (
            "Container marked as failed: container_1_02 on host: gpu7.example. Exit status: -100. Diagnostics: ",
            "Node gpu7.example was lost with the containers on it",
        ),
        ("Exit status: -101. Diagnostics: 1/1 local-dirs have turned bad", "A node has no usable disk left"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of",
            "A training step did not fit into a GPU's memory: CUDA could not allocate 2.00 GiB more.",
        ),
        (
            "Cannot reserve additional contiguous bytes in the vectorized reader (requested 16777216 bytes).\n"
            "Caused by: java.lang.OutOfMemoryError: Java heap space",
            "The rows that Spark reads from Parquet or ORC at once, 4,096 by default, do not fit into the heap. Write "
            "conf={'spark.sql.parquet.columnarReaderBatchSize': '16'}, or",
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
        (
            "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: The DiskSpace quota of /user/bob is exceeded: "
            "quota = 1048576 B = 1 MB but diskspace consumed = 402653184 B = 384 MB",
            "The HDFS directory /user/bob may have 1 MB, counting each replica of a block, and a write exceeded that.",
        ),
        (
            "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException: The NameSpace quota (directories and files) of "
            "directory /user/bob is exceeded: quota=10 file count=11",
            "The HDFS directory /user/bob may have 10 files and directories, and a write exceeded that.",
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


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "/bin/bash: line 1: /opt/java/bin/java: No such file or directory",
            "There is no Java on the node at /opt/java",
        ),
        (  # Java 11, the driver of Spark 4.2
            "Error occurred during initialization of boot layer\njava.lang.module.FindException: Module "
            "jdk.incubator.vector not found\n",
            "The Java of a node is older than 17, or is without the module jdk.incubator.vector",
        ),
        (  # Java 8
            "Unrecognized option: --add-modules=jdk.incubator.vector\nError: Could not create the Java Virtual",
            "The Java of a node is older than 17",
        ),
        (
            'Exception in thread "main" java.lang.UnsupportedClassVersionError: mine/Udf has been compiled by a more '
            "recent version of the Java Runtime (class file version 61.0), this version of the Java Runtime only "
            "recognizes class file versions up to 52.0",
            "A node has Java 8, and what it was given needs Java 17.",
        ),
        (  # pyspark/errors/error-conditions.json
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark "
            "cannot run with different minor versions.",
            "The nodes have different Pythons at one path: 3.9 where a task ran, and 3.11 where the driver did.",
        ),
        (
            "./environment/bin/python: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by "
            "./environment/lib/libpython3.11.so.1.0)",
            "A node's C library is older than glibc 2.34, which ./environment/lib/libpython3.11.so.1.0 needs.",
        ),
    ],
)
def test_a_node_whose_java_python_or_c_library_will_not_do(text: str, sentence: str) -> None:
    diagnosis = diagnose(group_plan(), text)
    assert diagnosis and diagnosis.sentence.startswith(sentence), diagnosis


FAILED_ONCE = (
    "Application application_1_0001 failed 1 times (global limit =2; local limit is =1) due to {}. Failing the "
    "application."
)
"""RMAppImpl.getAppAttemptFailedDiagnostics of Hadoop 3.3.6 and 3.5.0, with the diagnostics of the attempt."""
ENDED = (
    "AM Container for appattempt_1_0001_000001 exited with  exitCode: {}\nFailing this attempt.Diagnostics: {}For more "
    "detailed output, check the application tracking page: http://rm:8088/cluster/app/application_1_0001 Then click on "
    "links to logs of each attempt.\n"
)
"""RMAppAttemptImpl.getAMContainerCrashedDiagnostics of Hadoop 3.3.6 and 3.5.0."""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (  # RMAppAttemptImpl.getAMExpiredDiagnostics
            "ApplicationMaster for attempt appattempt_1_0001_000001 timed out",
            "The driver did not register with the ResourceManager, or sent it no heartbeat, for too long "
            "(yarn.am.liveness-monitor.expiry-interval-ms): its node was lost or cut off, its JVM was paused, or the "
            "node took longer to download and unpack an archive, such as a packed environment.",
        ),
        (  # SchedulerUtils.LOST_CONTAINER
            ENDED.format(-100, "Container released on a *lost* node"),
            "A node was lost with the containers on it",
        ),
        (  # SchedulerUtils.EXPIRED_CONTAINER
            ENDED.format(-100, "Container expired since it was unused"),
            "A container that YARN granted was not started in time",
        ),
        (  # AMLauncher.onAMLaunchFailed
            "Error launching appattempt_1_0001_000001. Got exception: java.net.ConnectException: Call From rm/10.0.0.1 "
            "to node7:45454 failed on connection exception: java.net.ConnectException: Connection refused\n\tat sun",
            "YARN could not start the driver's container: java.net.ConnectException: Call From rm/10.0.0.1 to "
            "node7:45454 failed on connection exception",
        ),
        (  # ContainerManagerImpl.authorizeStartAndResourceIncreaseRequest, through AMLauncher.onAMLaunchFailed
            "Error launching appattempt_1_0001_000001. Got exception: org.apache.hadoop.yarn.exceptions.YarnException: "
            "Unauthorized request to start container. \nThis token is expired. current time is 1795290845344 found "
            "1795290245344\nNote: System times on machines may be out of sync. Check system time and time zones.",
            "The clocks of the ResourceManager and of a node differ by more than YARN allows. Synchronize them with",
        ),
        (  # ContainerImpl of the NodeManager: ContainerExitStatus.INVALID after a failed localization
            ENDED.format(-1000, "[2026-11-23 10:00:00.123]File does not exist: hdfs://nn/code.zip\n"),
            "A node could not prepare the driver's container: File does not exist: hdfs://nn/code.zip.",
        ),
        (  # ContainerExitStatus.KILLED_BY_RESOURCEMANAGER
            ENDED.format(-106, "Container killed by the ResourceManager"),
            "The ResourceManager ended the driver's container",
        ),
        (  # ContainerExecutor.ExitCode.TERMINATED
            ENDED.format(143, "[2026-11-23 10:00:00.123]Container killed on request. Exit code is 143"),
            "The driver's container was ended from outside (SIGTERM)",
        ),
        (  # ApplicationMaster.scala of Spark 4.2: EXIT_SC_NOT_INITED
            ENDED.format(13, "[2026-11-23 10:00:00.123]Exception from container-launch.\n"),
            "The driver failed before it created a Spark session",
        ),
        (  # ApplicationMaster.scala of Spark 4.2: runDriver
            "Timed out waiting for SparkContext.",
            "The driver created no Spark session within spark.yarn.am.waitTime",
        ),
        (  # ApplicationMaster.scala of Spark 4.2: launchReporterThread, EXIT_REPORTER_FAILURE
            "Exception was thrown 5 time(s) from Reporter thread.",
            "The driver could not request containers from the ResourceManager, 5 times in a row.",
        ),
    ],
)
def test_a_failed_application_master_has_a_sentence_of_its_own(text: str, sentence: str) -> None:
    for written in (text, FAILED_ONCE.format(text)):
        diagnosis = diagnose(group_plan(), written)
        assert diagnosis and diagnosis.sentence.startswith(sentence), diagnosis


def test_an_application_beyond_its_lifetime_names_the_setting() -> None:
    """RMAppLifetimeMonitor.expire of Hadoop 3.3.6 and 3.5.0."""
    text = "Application is killed by ResourceManager as it has exceeded the lifetime period."
    diagnosis = diagnose(group_plan(), text)
    assert diagnosis and diagnosis.sentence == (
        "The application ran longer than queue train allows (yarn.scheduler.capacity.<queue>.maximum-application-"
        "lifetime). Submit to another queue, or have the limit raised."
    )


def test_the_fix_for_a_script_names_no_option_of_recipes() -> None:
    diagnosis = diagnose(
        group_plan().with_job(spec={"script": "toy.script"}), "CUDA out of memory. Tried to allocate 2.00 GiB."
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
    for limit, allowed in (("4608m", False), ("4609m", True)):
        plan = group_plan().with_job(grow_memory_to=limit)
        changed, why = remediate(plan, diagnosis)
        assert diagnosis and changed == (plan.with_job(memory=diagnosis.memory) if allowed else plan)
        assert why == (
            "The memory was too small; now memory=Memory(heap='512m', native='3713m')."
            if allowed
            else "A container of 4609 MB is needed, but grow_memory_to='4608m' does not allow it."
        )


def test_memory_of_the_driver_grows_alone() -> None:
    plan = group_plan().with_job(grow_memory_to="8g")
    changed, why = remediate(plan, diagnose(plan, AM_KILLED))
    assert changed == plan.with_job(driver_memory=Memory(heap="1g", native="190m"))
    assert why == "The memory was too small; now driver_memory=Memory(heap='1g', native='190m')."


@pytest.mark.parametrize("diagnosis", [None, Diagnosis("A node was lost.")])
def test_memory_stays_where_it_was_not_the_cause(diagnosis: Diagnosis | None) -> None:
    plan = group_plan().with_job(grow_memory_to="8g")
    assert remediate(plan, diagnosis) == (plan, "")


def test_an_invalid_limit_of_growth_is_named() -> None:
    with pytest.raises(TrainyardError, match=r"^grow_memory_to='8x' is not a valid size"):
        remediate(group_plan().with_job(grow_memory_to="8x"), diagnose(group_plan(), AM_KILLED))


def test_memory_that_grew_before_grows_from_its_last_size() -> None:
    once = diagnose(group_plan(), WORKER_KILLED)
    again = diagnose(group_plan(), WORKER_KILLED.replace("3.6 GB of 3 GB", "4.6 GB of 4.5 GB"))
    assert once and again and once.memory and again.memory
    needed = [sizing.size(memory, "T", "memory").needed for memory in (once.memory, again.memory)]
    assert needed == [math.ceil(3687 * 1.25), math.ceil(4711 * 1.25)]
    assert (once.memory.heap, again.memory.heap) == ("512m", "512m")


EXECUTORS = group_plan().with_job(workers=None)
UNMEASURED = "Exit code from container container_1_0001_01_{} is : -104"


@pytest.mark.parametrize(
    ("plan", "text", "sentence"),
    [
        (
            group_plan(),
            AM_KILLED,
            "YARN killed the driver: it used 561 MB of the 512 MB of its container, in which the heap is 1g and all "
            "else is native memory. Write driver_memory=Memory(heap='1g', native='190m').",
        ),
        (
            group_plan(),
            UNMEASURED.format("000001"),
            "YARN killed the driver: it used 1408 MB of the 1408 MB of its container, in which the heap is 1g and all "
            "else is native memory. Write driver_memory=Memory(heap='1g', native='352m').",
        ),
        (
            EXECUTORS,
            UNMEASURED.format("000002"),
            "YARN killed an executor: it used 2944 MB of the 2944 MB of its container, in which the heap is 512m and "
            "all else is native memory. Write memory=Memory(heap='512m', native='2784m').",
        ),
        (
            group_plan(),
            VIRTUAL.replace("000002", "000001"),
            "YARN killed the driver for its virtual memory, 2.3 GB of 2.1 GB, which torch and the JVM reserve without "
            "using it. Set yarn.nodemanager.vmem-check-enabled=false on the nodes, or raise "
            "yarn.nodemanager.vmem-pmem-ratio.",
        ),
        (
            group_plan(),
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0",
            "A training step did not fit into a GPU's memory: CUDA could not allocate 20.00 MiB more. Write a smaller "
            "batch_size, or micro_batches=2 or more for the same batch in parts, or precision='bfloat16'.",
        ),
        (
            group_plan(),
            "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This "
            "error indicates that your module has parameters that were not used in producing loss.",
            "Some parameters of the model get no gradient in a step, and this strategy waits for the gradients of all. "
            "If they never get one, name them in the recipe's freeze=; otherwise write strategy={'name': 'allreduce', "
            "'find_unused_parameters': True}.",
        ),
        (
            group_plan(),
            "java.lang.OutOfMemoryError: GC overhead limit exceeded",
            "A JVM ran out of heap (GC overhead limit exceeded). The driver has 1g, an executor 512m: write a larger "
            "heap in driver_memory=Memory(...) if rows are collected, else in memory=Memory(...).",
        ),
    ],
)
def test_a_sentence_about_memory_names_the_container_and_what_to_write(plan: Plan, text: str, sentence: str) -> None:
    diagnosis = diagnose(plan, text)
    assert diagnosis and diagnosis.sentence == sentence


@pytest.mark.parametrize("code", [13, 143])
def test_a_cause_in_the_log_comes_before_an_exit_code(code: int) -> None:
    """Spark 4.2 ends with 13 whatever fails before the driver has registered, as a missing module does."""
    diagnostics = ENDED.format(code, "[2026-11-23 10:00:00.123]Exception from container-launch.\n")
    found = diagnose(group_plan(), diagnostics, "ModuleNotFoundError: No module named 'pydantic'")
    assert found and "'pydantic'" in found.sentence
