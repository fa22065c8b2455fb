"""A plan held against a cluster: all problems at once, each with what to write instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.plugins.clusters import NODE, gang, node, queue, snapshot
from trainyard.errors import TrainyardError
from trainyard.yarn import fit
from trainyard.yarn.snapshot import ClusterSnapshot, Resources


def problems(plan: Any, at: ClusterSnapshot) -> str:
    return "\n".join(finding.problem for finding in fit.check_plan(plan, at) if finding.problem)


def test_what_fits_has_no_problem() -> None:
    assert problems(gang(4), snapshot()) == ""
    assert problems(gang(8, least=4), snapshot()) == "", "there is room for the least of it"


@pytest.mark.parametrize(
    ("plan", "at", "problem"),
    [
        (gang(queue="no"), snapshot(), "TrainOperator 'train': There is no queue 'no'; there are etl, train."),
        (gang(queue="etl"), snapshot(), "Queue root.etl may not use label 'gpu'; of the queues, these may: train."),
        (
            gang(node_label="tpu"),
            snapshot(),
            "The cluster has no node label 'tpu', but: gpu. Write one of them as n",
        ),
        (gang(), snapshot(queues=(queue("train", "gpu", running=False),)), "Queue root.train is stopped."),
        (gang(), snapshot(queues=(queue("train", "gpu", submitters=("eve ",)),)), "User 'ada' may not submit to queue"),
        (gang(), snapshot(nodes=snapshot().nodes[:1]), "No node of partition 'gpu' runs at present"),
        (gang(5), snapshot(), "2 nodes of partition 'gpu' hold 4 of the 5 containers that must run at once"),
        (gang(5), snapshot(), "Write workers=4, or ask for less in each container."),
        (gang(memory="9g"), snapshot(), "the largest container is 6 GB (yarn.scheduler.maximum-allocation-mb)"),
        (gang(), snapshot(nodes=snapshot().nodes[1:]), "No node without a label runs at present"),
        (
            gang(isolation="whole_node"),
            snapshot(nodes=(*snapshot().nodes, node("g3", total=Resources(4096, 4, 2)))),
            "fills nodes of one size, and those of partition 'gpu' offer 4096 MB, 6144 MB.",
        ),
        (
            gang(),
            snapshot(queues=(queue("train", "gpu", most={"gpu": Resources(3072, 4, 4)}),)),
            "Queue root.train may use at most 3072 MB, 4 cores, 4 GPUs of partition 'gpu', and this needs 6144 MB",
        ),
        (
            gang(),
            snapshot(nodes=(snapshot().nodes[0], node("g1", total=replace(NODE, gpus=0)))),
            "No node of partition 'gpu' offers yarn.io/gpu.",
        ),
    ],
)
def test_what_does_not_fit_is_told_with_a_remedy(plan: Any, at: ClusterSnapshot, problem: str) -> None:
    assert problem in problems(plan, at)


def test_a_group_may_hold_the_user() -> None:
    assert problems(gang(), snapshot(queues=(queue("train", "gpu", submitters=("eve staff",)),))) == ""


def test_a_plan_that_fits_is_submitted_in_containers_of_its_size() -> None:
    conf = fit.fit_to_cluster(gang(isolation="whole_node"), snapshot()).conf
    assert conf["spark.executor.memory"] == "512m"
    assert conf["spark.executor.memoryOverhead"] == f"{6144 - 512}m"


def test_a_plan_that_does_not_fit_is_refused_with_all_problems() -> None:
    at = snapshot(queues=(queue("train", running=False),))
    with pytest.raises(TrainyardError, match=r"is stopped(.|\n)*may not use label 'gpu'"):
        fit.fit_to_cluster(gang(), at)


def test_the_table_says_what_is_needed_and_what_there_is() -> None:
    text = fit.as_text(fit.check_plan(gang(5), snapshot()))
    row = next(line for line in text.splitlines() if line.startswith("train  room"))
    assert row.split("  ")[-1].strip() == "DOES NOT FIT"
    assert "5 x 3072 MB, 1 core, 1 GPU" in row and "room for 4" in row


def test_a_queues_own_label_is_meant_where_none_is_asked_for() -> None:
    at = snapshot(queues=(queue("train", "gpu", default_label="gpu"),))
    found = fit.check_plan(gang(3, node_label=None), at)
    assert [finding.problem for finding in found if finding.problem] == []
    assert next(f.found for f in found if f.subject == "room") == "room for 3"
