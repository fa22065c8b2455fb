"""Errors as users paste them into a search, one for each rule of `trainyard.diagnosis`, and why they occur."""

from __future__ import annotations

from dataclasses import dataclass

MEMORY = "[Memory](how-to/cluster/memory.md)"
ENVIRONMENTS = "[Environments](how-to/cluster/environments.md)"
CAPACITY = "[Wait for capacity](how-to/cluster/capacity.md)"
GPUS = "[GPUs on YARN](how-to/cluster/gpus.md)"
CONNECT = "[Connect a cluster](how-to/cluster/connect.md)"
PREFLIGHT = "[Preflight](how-to/cluster/preflight.md)"
RESUME = "[Resume after failure](how-to/training/resume.md)"


@dataclass(frozen=True)
class Symptom:
    """One error.

    Attributes:
        title: The part of the text that is the same each time, as a heading.
        text: The text of YARN, Spark, torch or HDFS, as an example.
        why: Why it occurs, in a sentence or two.
        see: A link to the guide about it, or "".
    """

    title: str
    text: str
    why: str
    see: str = ""


SYMPTOMS: dict[str, tuple[Symptom, ...]] = {
    "Memory": (
        Symptom(
            "Container killed by YARN for exceeding physical memory limits",
            "Reason: Container killed by YARN for exceeding physical memory limits. 3.6 GB of 3 GB physical memory "
            "used.",
            "A NodeManager measures all processes of a container: the JVM, Python, and the memory of torch and Arrow, "
            "which the heap does not include.",
            MEMORY,
        ),
        Symptom(
            "is running beyond the 'PHYSICAL' memory limit",
            "Container [pid=29489,containerID=container_1795290845344_0013_01_000001] is running 50892800B beyond the "
            "'PHYSICAL' memory limit. Current usage: 1.5 GB of 1.4 GB physical memory used; 3.2 GB of 2.9 GB virtual "
            "memory used. Killing container.",
            "The NodeManager's message for a container beyond its physical memory: JVM, Python, torch and Arrow "
            "together. A container whose id ends with 000001 is the driver's.",
            MEMORY,
        ),
        Symptom(
            "Exit status: -104",
            "Container marked as failed: container_1795290845344_0013_01_000002 on host: node7. Exit status: -104.",
            "The exit status of a memory kill, where YARN does not say how much was used.",
            MEMORY,
        ),
        Symptom(
            "is running beyond the 'VIRTUAL' memory limit",
            "Container [pid=1,containerID=container_1795290845344_0013_01_000002] is running 1B beyond the 'VIRTUAL' "
            "memory limit. Current usage: 400 MB of 1 GB physical memory used; 2.3 GB of 2.1 GB virtual memory used. "
            "Killing container.",
            "Virtual memory is what a process reserves, used or not; torch with CUDA reserves many gigabytes.",
        ),
        Symptom(
            "exceeding virtual memory limits",
            "Container killed by YARN for exceeding virtual memory limits. 2.3 GB of 2.1 GB virtual memory used.",
            "Spark's message for a container beyond its virtual memory, which is what its processes reserve, used or "
            "not.",
        ),
        Symptom(
            "CUDA out of memory. Tried to allocate",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "15.77 GiB",
            "Model, gradients, optimizer state and activations of a micro-batch are on the GPU at once; activations "
            "grow with the rows of a micro-batch.",
            MEMORY,
        ),
        Symptom(
            "Cannot reserve additional contiguous bytes in the vectorized reader",
            "Cannot reserve additional contiguous bytes in the vectorized reader (requested 16777216 bytes). As a "
            "workaround, you can reduce the vectorized reader batch size",
            "Spark's readers of columnar files fill arrays in the heap with so many rows at once, whatever their size.",
            MEMORY,
        ),
        Symptom(
            "java.lang.OutOfMemoryError: Java heap space",
            "java.lang.OutOfMemoryError: Java heap space",
            "Spark's own data is in the heap: shuffles, broadcasts, and rows that `prepare` collects.",
            MEMORY,
        ),
        Symptom(
            "Container killed on request. Exit code is 137",
            "Container exited with a non-zero exit code 137. Exit code: 137",
            "137 is 128 + 9, SIGKILL. Linux sends it when the machine has no memory left, although each container is "
            "within its limit.",
            MEMORY,
        ),
        Symptom(
            "above the max threshold of this cluster",
            "Required executor memory (4096 MB), offHeap memory (0) MB, overhead (409 MB), and PySpark memory (0 MB) "
            "is above the max threshold (3072 MB) of this cluster!",
            "A container is heap, overhead, off-heap and PySpark memory in one sum, and YARN grants no larger one.",
            MEMORY,
        ),
        Symptom(
            "Requested resource type=[memory-mb]",
            "Cannot allocate containers as requested resource is greater than maximum allowed allocation. Requested "
            "resource type=[memory-mb], Requested resource=<memory:16384, vCores:1>",
            "The ResourceManager's message for a container that is larger than the largest that it grants.",
            MEMORY,
        ),
    ),
    "Queues, labels and capacity": (
        Symptom(
            "doesn't have permission to access all labels in resource request",
            "InvalidLabelResourceRequestException: Invalid resource request, queue=train doesn't have permission to "
            "access all labels in resource request. labelExpression of resource request=gpu. Queue labels=",
            "YARN writes the same text for a label that the queue may not use, and for one that does not exist.",
            GPUS,
        ),
        Symptom(
            "to unknown queue",
            "Application application_1795290845344_0013 submitted by user etl to unknown queue: nosuch",
            "The queue of the operator, or of the Spark connection, is not one of this cluster. YARN before 3.3 finds "
            "a queue only by its last name.",
            CONNECT,
        ),
        Symptom(
            "does not have permission to submit",
            "User bob does not have permission to submit application_1795290845344_0013 to queue train",
            "A CapacityScheduler checks `acl_submit_applications` of the queue and of its parents.",
            PREFLIGHT,
        ),
        Symptom(
            "Requested resource type=[yarn.io/gpu]",
            "Cannot allocate containers as requested resource is greater than maximum allowed allocation. Requested "
            "resource type=[yarn.io/gpu], Requested resource=<memory:1024, vCores:1, yarn.io/gpu: 9>",
            "A container requests the GPUs of all its workers, and must fit on one node.",
            GPUS,
        ),
        Symptom(
            "waiting for resources to be assigned for AM",
            "Application is Activated, waiting for resources to be assigned for AM. Details : AM Partition = gpu",
            "The application is ACCEPTED and waits: the queue's capacity in the partition, or its limit for drivers "
            "(`maximum-am-resource-percent`), is used up.",
            CAPACITY,
        ),
        Symptom(
            "Container was preempted / Exit status: -102",
            "Container container_1795290845344_0013_01_000002 on host: node7 was preempted.",
            "A queue that uses more than its guaranteed capacity gives containers back when others need theirs.",
            RESUME,
        ),
        Symptom(
            "has exceeded the lifetime period",
            "Application is killed by ResourceManager as it has exceeded the lifetime period.",
            "A queue can limit how long an application may run.",
        ),
        Symptom(
            "was killed by user",
            "Application application_1795290845344_0013 was killed by user bob at 10.0.0.1",
            "Somebody ended it: in YARN's page, by `yarn application -kill`, or by clearing or marking the task in "
            "Airflow.",
        ),
    ),
    "Nodes": (
        Symptom(
            "Container released on a *lost* node / Exit status: -100",
            "Container marked as failed: container_1795290845344_0013_01_000002 on host: node7. Exit status: -100. "
            "Diagnostics: Container released on a *lost* node",
            "A NodeManager that sends no heartbeat for ten minutes is taken for lost, with all containers.",
            RESUME,
        ),
        Symptom(
            "local-dirs have turned bad / No space left on device / Exit status: -101",
            "Exit status: -101. Diagnostics: 1/1 local-dirs have turned bad",
            "YARN uses a disk only below 90 % full. The cache of shards is limited by `cache_gb`.",
        ),
        Symptom(
            "No module named",
            "ModuleNotFoundError: No module named 'torchmetrics'",
            "Jobs run with the Python of the node, or of a packed environment, and with the package of your recipe.",
            ENVIRONMENTS,
        ),
        Symptom(
            "python: No such file or directory / Exit code: 127",
            "env: /opt/train/bin/python: No such file or directory",
            "`spark.pyspark.python` is a path on every node; by default that of Airflow's own Python.",
            ENVIRONMENTS,
        ),
        Symptom(
            "bin/java: No such file or directory",
            "/bin/bash: line 1: /opt/java/bin/java: No such file or directory",
            "NodeManagers start containers with `JAVA_HOME` of their own configuration.",
            ENVIRONMENTS,
        ),
        Symptom(
            "UnsupportedClassVersionError",
            "java.lang.UnsupportedClassVersionError: org/example/Udf has been compiled by a more recent version of the "
            "Java Runtime (class file version 61.0), this version of the Java Runtime only recognizes class file "
            "versions up to 52.0",
            "Class file version 61 is Java 17, 55 is Java 11, 52 is Java 8.",
            ENVIRONMENTS,
        ),
        Symptom(
            "Module jdk.incubator.vector not found / Unrecognized option: --add-modules",
            "java.lang.module.FindException: Module jdk.incubator.vector not found",
            "Spark 4 starts its JVMs with options that older Java versions refuse.",
            ENVIRONMENTS,
        ),
        Symptom(
            "Python in worker has different version than that in driver",
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark "
            "cannot run with different minor versions.",
            "The same path names different interpreters on different nodes.",
            ENVIRONMENTS,
        ),
        Symptom(
            "version GLIBC_2.34 not found",
            "/lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./environment/lib/libpython3.11.so.1.0)",
            "A program runs on the C library that it was built with, and on later ones.",
            ENVIRONMENTS,
        ),
        Symptom(
            "Resource: gpu, with addresses is less than what the user requested",
            "Resource: gpu, with addresses: 0 is less than what the user requested: 2",
            "YARN counts the GPUs that the node's configuration names; an executor uses those that `nvidia-smi` finds.",
            GPUS,
        ),
    ),
    "Training": (
        Symptom(
            "Expected to have finished reduction in the prior iteration before starting a new one",
            "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This "
            "error indicates that your module has parameters that were not used in producing loss.",
            "The strategy `allreduce` averages the gradients of all parameters in each step, so that a worker waits "
            "for those that a step does not compute.",
            "[Choose a strategy](how-to/training/strategy.md)",
        ),
    ),
    "The driver": (
        Symptom(
            "ApplicationMaster for attempt timed out",
            "ApplicationMaster for attempt appattempt_1795290845344_0013_000001 timed out",
            "The driver is the application master. It registers when it has a Spark session, and then sends "
            "heartbeats.",
        ),
        Symptom(
            "This token is expired. current time is",
            "Error launching appattempt_1795290845344_0013_000001. Got exception: YarnException: Unauthorized request "
            "to start container. This token is expired. current time is 1795290845344 found 1795290245344",
            "A NodeManager compares the time in a request with its own clock.",
        ),
        Symptom(
            "Error launching appattempt",
            "Error launching appattempt_1795290845344_0013_000001. Got exception: java.net.ConnectException: Call From "
            "rm/10.0.0.1 to node7:45454 failed on connection exception: java.net.ConnectException: Connection refused",
            "The ResourceManager granted a container on a node, and could not reach the NodeManager there.",
        ),
        Symptom(
            "Container expired since it was unused",
            "Container expired since it was unused",
            "A granted container must be started within ten minutes.",
        ),
        Symptom(
            "Timed out waiting for SparkContext",
            "Timed out waiting for SparkContext.",
            "The driver must create its session within `spark.yarn.am.waitTime` (100 s).",
        ),
        Symptom(
            "Exception was thrown from Reporter thread",
            "Exception was thrown 5 time(s) from Reporter thread.",
            "The driver's requests for containers go to the ResourceManager by RPC.",
        ),
        Symptom(
            "exited with exitCode: 13",
            "AM Container for appattempt_1795290845344_0013_000001 exited with  exitCode: 13",
            "Spark ends with 13 whatever fails before the session exists.",
        ),
        Symptom(
            "exited with exitCode: -1000",
            "AM Container for appattempt_1795290845344_0013_000001 exited with  exitCode: -1000\nFailing this attempt."
            "Diagnostics: [2026-11-23 10:00:00.123]File does not exist: hdfs://namenode/code.zip\n",
            "Before a container starts, its node downloads the files of the application.",
        ),
        Symptom(
            "exited with exitCode: -106",
            "AM Container for appattempt_1795290845344_0013_000001 exited with  exitCode: -106",
            "The ResourceManager ends containers that a restarted NodeManager does not report.",
        ),
        Symptom(
            "exited with exitCode: 143",
            "AM Container for appattempt_1795290845344_0013_000001 exited with  exitCode: 143",
            "143 is 128 + 15, SIGTERM.",
        ),
    ),
    "HDFS": (
        Symptom(
            "Permission denied: user=..., access=WRITE",
            'Permission denied: user=bob, access=WRITE, inode="/trainyard":hdfs:supergroup:drwxr-xr-x',
            "Applications run as the user who submits them: that of Airflow's process, or of its ticket.",
            CONNECT,
        ),
        Symptom(
            "DSQuotaExceededException",
            "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException: The DiskSpace quota of /trainyard is exceeded: "
            "quota = 1099511627776 B = 1 TB but diskspace consumed = 1099914280960 B = 1.00 TB",
            "An administrator limits the space of the directory. Each replica of a block counts, and a block that is "
            "being written counts as a full one.",
        ),
        Symptom(
            "NSQuotaExceededException",
            "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException: The NameSpace quota (directories and files) of "
            "directory /trainyard is exceeded: quota=100000 file count=100001",
            "An administrator limits the number of files and directories below the directory.",
        ),
        Symptom(
            "Name node is in safe mode",
            "Name node is in safe mode. The reported blocks 0 needs additional 12 blocks to reach the threshold",
            "A NameNode that starts accepts no writes until enough blocks are reported.",
        ),
        Symptom(
            "could only be written to 0 of the 1 minReplication nodes",
            "File /trainyard/x could only be written to 0 of the 1 minReplication nodes. There are 0 datanode(s) "
            "running",
            "A NameNode answers, and none of its DataNodes can store the block.",
        ),
    ),
}
"""The errors by topic."""
