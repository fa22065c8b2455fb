"""Rules for a node whose Java, Python or C library will not do.

The texts are those of Java 8 and 11, glibc and Spark.
"""

from __future__ import annotations

import re

from trainyard.diagnosis.diagnosis import Diagnosis, Rule, sentence
from trainyard.planning.plan import Plan
from trainyard.planning.runtime import MIN_JAVA

_CLASS_FILE_OFFSET = 44
"""The version of a class file less that of its Java (JVM specification, table 4.1-A)."""

_FIX = (
    f"Install Java {MIN_JAVA} there and have JAVA_HOME name it, or ship one with the application: "
    "`trainyard environment pack`."
)


def _old_class_file(match: re.Match[str], _: Plan) -> Diagnosis:
    needed, found = (int(match[name]) - _CLASS_FILE_OFFSET for name in ("needed", "found"))
    return Diagnosis(f"A node has Java {found}, and what it was given needs Java {needed}. {_FIX}")


BY_TEXT: list[tuple[str, Rule]] = [
    (
        r"(?P<java>/\S*/bin/java): (?:No such file or directory|not found|Permission denied)",
        sentence(f"There is no Java on the node at {{java}}. {_FIX}"),
    ),
    (
        r"UnsupportedClassVersionError: .*?class file version (?P<needed>\d+)\.\d+.*?up to (?P<found>\d+)\.\d+",
        _old_class_file,
    ),
    (
        r"Unrecognized option: --add-(?:modules|opens)|FindException: Module jdk\.incubator\.vector not found",
        sentence(
            f"The Java of a node is older than {MIN_JAVA}, or is without the module jdk.incubator.vector, which Spark "
            f"loads. {_FIX}"
        ),
    ),
    (
        r"Python in worker has different version: (?P<worker>.+?) than that in driver: (?P<driver>.+?),",
        sentence(
            "The nodes have different Pythons at one path: {worker} where a task ran, and {driver} where the driver "
            "did. Install one version on all nodes, or ship one with the application: `trainyard environment pack`."
        ),
    ),
    (
        r"version `GLIBC_(?P<needed>[\d.]+)' not found \(required by (?P<file>[^)]+)\)",
        sentence(
            "A node's C library is older than glibc {needed}, which {file} needs. Pack or build it on a machine with "
            "the nodes' release of Linux."
        ),
    ),
]
