"""A profile is what a task requests where its own options are the default ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainyard.errors import TrainyardError
from trainyard.planning.job import Job
from trainyard.planning.placement import Placement
from trainyard.planning.profile import Profile, apply_profile
from trainyard.planning.sizing import Memory, split
from trainyard.schemas.specs.task_key import TaskKey

KEY = TaskKey(dag_id="d", run_id="r", task_id="t", directory="/r")
EXECUTOR, DRIVER = Memory(heap="512m", native="2g"), Memory(heap="1g", native="512m")
JOB = Job("T", KEY, "/s", {}, memory=EXECUTOR, driver_memory=DRIVER, environment="hdfs:///all.tar.gz", conf={"a": "1"})
GPU = Profile(
    queue="train", node_label="gpu", workers_per_container=2, gpus_per_worker=2, gpus_per_executor=1,
    memory="16g", driver_memory="2g", environment="hdfs:///cuda.tar.gz", conf={"a": "2", "b": "2"},
)  # fmt: skip


def apply(profile: Profile, job: Job) -> Job:
    return apply_profile(profile, job, EXECUTOR, DRIVER)


def test_a_task_without_options_has_those_of_its_profile() -> None:
    found = apply(GPU, JOB)
    assert found.placement == Placement(queue="train", node_label="gpu", workers_per_container=2)
    assert (found.memory, found.driver_memory) == (split("16g", EXECUTOR, ""), split("2g", DRIVER, ""))
    assert (found.environment, found.conf) == ("hdfs:///cuda.tar.gz", {"a": "1", "b": "2"})


@pytest.mark.parametrize(("workers", "gpus"), [(4, 2), (None, 1)])
def test_a_profile_has_gpus_for_workers_and_others_for_executors(workers: int | None, gpus: int) -> None:
    assert apply(GPU, replace(JOB, workers=workers)).gpus == gpus


def test_an_option_of_the_task_comes_before_its_profile() -> None:
    own = Placement(queue="urgent")
    job = Job("T", KEY, "/s", {}, memory=Memory(heap="3g"), driver_memory=DRIVER, placement=own, gpus=3)
    found = apply(GPU, job)
    assert (found.memory, found.placement.queue, found.gpus) == (Memory(heap="3g"), "urgent", 3)
    assert found.placement.node_label == "gpu"


def test_an_empty_profile_changes_nothing() -> None:
    assert apply(Profile(), JOB) == JOB


def test_a_size_that_is_not_valid_is_refused() -> None:
    with pytest.raises(TrainyardError, match=r"^profile: memory='16' is not a valid size"):
        apply(Profile(memory="16"), JOB)
