"""Submit an application with a single container that has GPUs, and print its id: `python gpu_submitter.py JSON`.

The ResourceManager's REST interface ignores all resources but memory and cores of a new application (RMWebAppUtil of
Hadoop 3.2 to 3.5), so this program uses the Hadoop client in Spark's jars.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError

ENDED = ("FINISHED", "FAILED", "KILLED")


def main(request: dict[str, Any]) -> None:
    """Submit the application of a request with name, queue, label, memory, gpus, environment and command."""
    gateway = JavaGateway.launch_gateway(
        classpath=os.environ["CLASSPATH"], java_path=None, die_on_exit=True, enable_auth=True
    )
    try:
        print(submit(gateway.jvm, request))
    except Py4JJavaError as error:
        sys.exit(str(error.java_exception.getMessage()).partition("\n\tat ")[0])
    finally:
        gateway.shutdown()


def submit(jvm: Any, request: dict[str, Any]) -> str:
    """Submit the application with Hadoop's client, and return its id."""
    yarn, java = jvm.org.apache.hadoop.yarn, jvm.java
    client = yarn.client.api.YarnClient.createYarnClient()
    client.init(yarn.conf.YarnConfiguration())
    client.start()
    try:
        context = client.createApplication().getApplicationSubmissionContext()
        commands, environment = java.util.ArrayList(), java.util.HashMap()
        commands.add(f"{request['command']} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr")
        for name, value in request["environment"].items():
            environment.put(name, value)
        resource = yarn.api.records.Resource.newInstance(request["memory"], 1)
        resource.setResourceValue("yarn.io/gpu", request["gpus"])
        context.setApplicationName(request["name"])
        context.setApplicationType("TRAINYARD")
        context.setQueue(request["queue"])
        context.setMaxAppAttempts(1)
        context.setResource(resource)
        if request["label"]:
            context.setNodeLabelExpression(request["label"])
        context.setAMContainerSpec(
            yarn.api.records.ContainerLaunchContext.newInstance(None, environment, commands, None, None, None)
        )
        id = context.getApplicationId()
        try:
            client.submitApplication(context)
        except Py4JJavaError:
            # It waits until the application is accepted, and takes one that has already ended for refused.
            if not has_ended(client, id):
                raise
        return str(id.toString())
    finally:
        client.stop()


def has_ended(client: Any, id: Any) -> bool:
    """Return whether there is an application, and it has ended."""
    try:
        return client.getApplicationReport(id).getYarnApplicationState().toString() in ENDED
    except Py4JJavaError:
        return False


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
