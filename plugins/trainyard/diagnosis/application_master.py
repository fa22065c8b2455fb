"""Rules for an application master, which is the driver, that fails to start, to register or to continue.

The texts are those of Hadoop 3.3 and 3.5 (RMAppAttemptImpl, AMLauncher, SchedulerUtils, RMAppLifetimeMonitor) and of
Spark 4.2 (ApplicationMaster.scala).
"""

from __future__ import annotations

from trainyard.diagnosis.diagnosis import Rule, sentence

_EXITED = r"AM Container for \S+ exited with\s+exitCode: {}\b"
_LAUNCH = r"Error launching appattempt_\w+\. Got exception: "

BY_TEXT: list[tuple[str, Rule]] = [
    (
        r"ApplicationMaster for attempt \S+ timed out",
        sentence(
            "The driver did not register with the ResourceManager, or sent it no heartbeat, for too long "
            "(yarn.am.liveness-monitor.expiry-interval-ms): its node was lost or cut off, its JVM was paused, or the "
            "node took longer to download and unpack an archive, such as a packed environment. Try again; if it recurs "
            "on other nodes, write a larger heap in driver_memory=Memory(...), or have that limit raised."
        ),
    ),
    (
        _LAUNCH + r".*?This token is expired",
        sentence(
            "The clocks of the ResourceManager and of a node differ by more than YARN allows. Synchronize them with "
            "NTP."
        ),
    ),
    (
        _LAUNCH + r"(?P<error>[^\n]+)",
        sentence(
            "YARN could not start the driver's container: {error}. Try again; if it recurs, have the node in this "
            "error decommissioned, or its NodeManager restarted."
        ),
    ),
    (
        r"Container expired since it was unused",
        sentence(
            "A container that YARN granted was not started in time "
            "(yarn.resourcemanager.rm.container-allocation.expiry-interval-ms): its node or the driver was too busy. "
            "Try again."
        ),
    ),
    (
        r"has exceeded the lifetime period",
        sentence(
            "The application ran longer than queue {plan.queue} allows "
            "(yarn.scheduler.capacity.<queue>.maximum-application-lifetime). Submit to another queue, or have the "
            "limit raised."
        ),
    ),
    (
        r"Timed out waiting for SparkContext|SparkContext did not initialize after waiting for",
        sentence(
            "The driver created no Spark session within spark.yarn.am.waitTime. The end of its log says what it "
            "waited for, such as HDFS, Kerberos or a metastore."
        ),
    ),
    (
        r"Exception was thrown (?P<count>\d+) time\(s\) from Reporter thread",
        sentence(
            "The driver could not request containers from the ResourceManager, {count} times in a row. The end of "
            "its log has the exception."
        ),
    ),
]
"""Rules for texts with one meaning, which come before the general ones."""

BY_EXIT_CODE: list[tuple[str, Rule]] = [
    (
        _EXITED.format(13),
        sentence("The driver failed before it created a Spark session. The end of its log has the cause."),
    ),
    (
        _EXITED.format(-1000) + r".*?Diagnostics: (?:\[[^\]\n]*\])?(?P<what>[^\n]*?)\.?\s*(?:\n|For more detailed|$)",
        sentence(
            "A node could not prepare the driver's container: {what}. Check that the file exists and that user and "
            "node may read it."
        ),
    ),
    (
        _EXITED.format(-106),
        sentence(
            "The ResourceManager ended the driver's container, as after a NodeManager restarts without "
            "yarn.nodemanager.recovery.enabled. Try again."
        ),
    ),
    (
        _EXITED.format(143),
        sentence(
            "The driver's container was ended from outside (SIGTERM), as when its NodeManager stops or an "
            "administrator ends it. Try again."
        ),
    ),
]
"""Rules for exit codes, which come after all texts: the text beside a code, or the log, often has the cause."""
