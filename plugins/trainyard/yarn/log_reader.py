"""Print the end of each log file of containers: `python log_reader.py APPLICATION OWNER BYTES CONTAINER@HOST...`.

YARN aggregates the logs of an ended application on HDFS, in a format that only its own Java classes read. This program
uses the Hadoop client in Spark's jars, in a process that ends with its JVM.
"""

from __future__ import annotations

import os
import sys

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

FILES = ("stdout", "stderr")


def main(application: str, owner: str, tail: int, containers: list[str]) -> None:
    """Print the last `tail` bytes of each log file of the containers.

    The files of a container's host are read alone, if its node is known by that name: each node has one.
    """
    gateway = JavaGateway.launch_gateway(
        classpath=os.environ["CLASSPATH"], java_path=None, die_on_exit=True, enable_auth=True
    )
    try:
        yarn, java = gateway.jvm.org.apache.hadoop.yarn, gateway.jvm.java
        aggregation = yarn.logaggregation
        factory = aggregation.filecontroller.LogAggregationFileControllerFactory(yarn.conf.YarnConfiguration())
        id = yarn.api.records.ApplicationId.fromString(application)
        controller = factory.getFileControllerForRead(id, owner)
        kinds = java.util.HashSet()
        for file in FILES:
            kinds.add(file)
        for entry in containers:
            container, _, host = entry.partition("@")
            request = aggregation.ContainerLogsRequest()
            request.setAppId(id)
            request.setAppOwner(owner)
            request.setAppFinished(True)
            request.setContainerId(container)
            request.setLogTypes(kinds)
            request.setBytes(-tail)
            written = java.io.ByteArrayOutputStream()
            for node in (f"{host}:", None) if host else (None,):
                request.setNodeId(node)
                if controller.readAggregatedLogs(request, written):
                    break
            print(written.toString())
    except Py4JJavaError as error:  # its message is in the JVM, which ends below
        sys.exit(str(error.java_exception.toString()))
    finally:
        gateway.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
