"""What the daemons say of a failure becomes a sentence that tells what to write instead."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stack.hadoop.cluster import Cluster
from tests.cluster.jobs import Exports, finished, wait_for
from trainyard.backends.spark_log import SparkLog
from trainyard.backends.submission import Submission
from trainyard.diagnosis.diagnose import diagnose
from trainyard.errors import TrainyardError
from trainyard.yarn.cluster import resource_manager
from trainyard.yarn.resource_manager import Application

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PYTHON = sys.executable
HOG = f"exec {PYTHON} -c 'held = b\"x\" * (400 << 20); import time; time.sleep(600)'".replace('"', '\\"')
Container = Callable[..., str]


@pytest.fixture
def container(configured: Cluster) -> Container:
    """What YARN says in the end of an application of one container, or what it refuses it with."""

    def run(user: str = "root", stop: bool = False, lose: tuple[str, ...] = (), **asked: Any) -> str:
        manager = replace(resource_manager(), user=user)
        defaults = {"name": "trial", "queue": "etl", "label": None, "memory": 256, "command": "true"}
        try:
            id = manager.submit(**defaults | asked)
        except TrainyardError as error:
            return str(error)
        found: list[Application | None] = []

        def in_state(*states: str) -> bool:
            found[:] = [manager.application(id)]
            return bool(found[0] and found[0].state in states)

        if stop:
            wait_for(lambda: in_state("RUNNING", "ACCEPTED"))
            manager.kill(id)
        if lose:
            wait_for(lambda: in_state("ACCEPTED") and found[0] and found[0].driver_logs)
        for node in lose:
            configured.kill(node)
        wait_for(lambda: in_state("FINISHED", "FAILED", "KILLED"))
        configured.start()
        configured.wait()
        assert found[0]
        return found[0].diagnostics

    return run


@pytest.mark.parametrize(
    ("trial", "sentence"),
    [
        (
            {"command": HOG},
            "YARN killed the driver: it used [2-4].. MB of the 256 MB of its container",
        ),
        ({"command": f"{PYTHON} -c 'import nothere'"}, "The Python on the node lacks the module 'nothere'."),
        ({"command": "/opt/none/bin/python -V"}, "The Python that the job runs with is not on the node."),
        ({"command": "kill -9 $$"}, "A process was killed with SIGKILL, not by YARN"),
        ({"command": "sleep 600", "stop": True}, "User 'root' killed the application."),
        (
            {"command": "sleep 600", "queue": "train", "label": "gpu", "lose": ("gpunode1", "gpunode2")},
            "A node was lost with the containers on it",
        ),
        ({"queue": "nosuch"}, "There is no queue 'nosuch'."),
        ({"queue": "train", "user": "bob"}, "User 'bob' may not submit to queue 'train'."),
        ({"queue": "etl", "label": "gpu"}, "Queue 'etl' may not use node label 'gpu', or there is no such label."),
        ({"queue": "train", "label": "tpu"}, "Queue 'train' may not use node label 'tpu', or there is no such label."),
        ({"memory": 99_000}, "A container is larger than the largest that this cluster grants"),
    ],
)
def test_a_failure_has_a_sentence(container: Container, exports: Exports, trial: dict[str, Any], sentence: str) -> None:
    said = container(**trial)
    found = diagnose(exports.plan(), said)
    assert found, said
    assert re.match(sentence, found.sentence), found.sentence


@pytest.mark.spark
@pytest.mark.parametrize(
    ("conf", "sentence"),
    [
        ({"spark.executor.memory": "8g"}, "A container is larger than the largest that this cluster grants, 6144 MB"),
        (
            {"spark.yarn.am.nodeLabelExpression": "tpu"},
            "Queue 'etl' may not use node label 'tpu', or there is no such label.",
        ),
    ],
)
def test_what_spark_submit_refuses_has_a_sentence(exports: Exports, conf: dict[str, str], sentence: str) -> None:
    plan, log = exports.plan(), SparkLog()
    heard: list[str] = []
    status = Submission(replace(plan, conf={**plan.conf, **conf}), log, heard.append).run()
    found = diagnose(plan, "\n".join(heard))
    assert status != 0 and found, heard
    assert found.sentence.startswith(sentence)


@pytest.mark.spark
def test_a_driver_without_memory_gets_more_when_it_is_tried_again(exports: Exports) -> None:
    plan = exports.plan(
        """
        import time


        def rows(spark, source):
            held = b"x" * (1700 << 20)
            print(f"{len(held)} bytes are held", flush=True)
            time.sleep(10)  # YARN looks once a second
            return spark.range(500)
        """,
        grow_memory_to="3g",
    )
    with pytest.raises(TrainyardError, match=r"YARN killed the driver: it used \d+ MB of the \d+ MB .* Write driver_m"):
        finished(plan)
    heard: list[str] = []
    try:
        record = finished(plan, heard.append)
    except TrainyardError:  # YARN looked at the first try before it held all of it, so it used less than it needs
        record = finished(plan, heard.append)
    assert record.status == "succeeded"
    assert any(line.startswith("It lacked memory; now driver_memory=Memory(heap='1g', native=") for line in heard)
    assert any("the last lines of the driver" in line and "bytes are held" in line for line in heard)
