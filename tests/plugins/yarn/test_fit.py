"""Checks of a plan against a cluster: all problems at once, each with its fix."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.plugins.clusters import NODE, group_plan, node, queue, snapshot
from trainyard.errors import TrainyardError
from trainyard.yarn import fit
from trainyard.yarn.snapshot import ClusterSnapshot, Resources


def problems(plan: Any, at: ClusterSnapshot) -> str:
    return "\n".join(finding.problem for finding in fit.check_plan(plan, at) if finding.problem)


def test_a_plan_that_fits_has_no_problem() -> None:
    assert problems(group_plan(4), snapshot()) == ""
    assert problems(group_plan(8, least=4), snapshot()) == "", "there is room for the least of it"


@pytest.mark.parametrize(
    ("plan", "at", "problem"),
    [
        (
            group_plan(queue="no"),
            snapshot(),
            "TrainOperator 'train': There is no queue 'no'; the queues are etl, train.",
        ),
        (group_plan(queue="etl"), snapshot(), "Queue root.etl may not use label 'gpu'; queues that may: train."),
        (
            group_plan(node_label="tpu"),
            snapshot(),
            "The cluster has no node label 'tpu'; it has gpu. Write one of them as n",
        ),
        (group_plan(), snapshot(queues=(queue("train", "gpu", running=False),)), "Queue root.train is stopped."),
        (
            group_plan(),
            snapshot(queues=(queue("train", "gpu", submitters=("eve ",)),)),
            "User 'ada' may not submit to queue",
        ),
        (group_plan(), snapshot(nodes=snapshot().nodes[:1]), "No node of partition 'gpu' is running"),
        (
            group_plan(5),
            snapshot(),
            "2 nodes of partition 'gpu' have room for 4 of the 5 containers that must run at once",
        ),
        (group_plan(5), snapshot(), "Write workers=4, or request less in each container."),
        (group_plan(memory="9g"), snapshot(), "the largest container is 6 GB (yarn.scheduler.maximum-allocation-mb)"),
        (group_plan(), snapshot(nodes=snapshot().nodes[1:]), "No node without a label is running"),
        (
            group_plan(isolation="whole_node"),
            snapshot(nodes=(*snapshot().nodes, node("g3", total=Resources(4096, 4, 2)))),
            "needs nodes of one size, and those of partition 'gpu' have 4096 MB, 6144 MB.",
        ),
        (
            group_plan(),
            snapshot(queues=(queue("train", "gpu", max={"gpu": Resources(3072, 4, 4)}),)),
            "Queue root.train may use at most 3072 MB, 4 cores, 4 GPUs of partition 'gpu', and this needs 6144 MB",
        ),
        (
            group_plan(),
            snapshot(nodes=(snapshot().nodes[0], node("g1", total=replace(NODE, gpus=0)))),
            "No node of partition 'gpu' offers yarn.io/gpu.",
        ),
    ],
)
def test_a_plan_that_does_not_fit_has_a_problem_with_its_fix(plan: Any, at: ClusterSnapshot, problem: str) -> None:
    assert problem in problems(plan, at)


def test_an_acl_with_groups_admits_every_user() -> None:
    assert problems(group_plan(), snapshot(queues=(queue("train", "gpu", submitters=("eve staff",)),))) == ""


def test_a_plan_that_fits_is_submitted_in_containers_of_its_size() -> None:
    conf = fit.fit_to_cluster(group_plan(isolation="whole_node"), snapshot()).conf
    assert conf["spark.executor.memory"] == "512m"
    assert conf["spark.executor.memoryOverhead"] == f"{6144 - 512}m"


def test_a_plan_that_does_not_fit_is_refused_with_all_problems() -> None:
    at = snapshot(queues=(queue("train", running=False),))
    with pytest.raises(TrainyardError, match=r"is stopped(.|\n)*may not use label 'gpu'"):
        fit.fit_to_cluster(group_plan(), at)


def test_the_table_has_what_is_needed_and_what_is_available() -> None:
    text = fit.as_text(fit.check_plan(group_plan(5), snapshot()))
    row = next(line for line in text.splitlines() if line.startswith("train  room"))
    assert row.split("  ")[-1].strip() == "DOES NOT FIT"
    assert "5 x 3072 MB, 1 core, 1 GPU" in row and "room for 4" in row


def test_without_node_label_the_default_label_of_the_queue_is_used() -> None:
    at = snapshot(queues=(queue("train", "gpu", default_label="gpu"),))
    findings = fit.check_plan(group_plan(3, node_label=None), at)
    assert [finding.problem for finding in findings if finding.problem] == []
    assert next(f.found for f in findings if f.subject == "room") == "room for 3"
