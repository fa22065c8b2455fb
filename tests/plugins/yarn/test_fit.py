"""Checks of a plan against a cluster: what YARN refuses is a problem, what YARN may accept is a warning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.plugins.snapshots import NODE, group_plan, node, queue, snapshot, stage_plan
from trainyard.errors import TrainyardError
from trainyard.planning.executors import Executors
from trainyard.planning.finding import as_text
from trainyard.planning.plan import Plan
from trainyard.planning.sizing import Memory
from trainyard.yarn import fit
from trainyard.yarn.snapshot import ClusterSnapshot, Resources

GENERAL = snapshot().nodes[0]


def problems(plan: Any, at: ClusterSnapshot) -> str:
    return "\n".join(finding.problem for finding in fit.check_plan(plan, at) if finding.problem)


def warnings(plan: Any, at: ClusterSnapshot) -> str:
    return "\n".join(finding.warning for finding in fit.check_plan(plan, at) if finding.warning)


def test_a_plan_that_fits_has_no_problem() -> None:
    for plan in (group_plan(4), group_plan(8, least=4)):  # the second has room for the least of it
        assert (problems(plan, snapshot()), warnings(plan, snapshot())) == ("", "")


@pytest.mark.parametrize(
    ("plan", "at", "problem"),
    [
        (group_plan(queue="etl"), snapshot(), "Queue root.etl may not use label 'gpu'; queues that may: train."),
        (
            group_plan(node_label="tpu"),
            snapshot(),
            "The cluster has no node label 'tpu'; it has gpu. Write one of them as n",
        ),
        (group_plan(), snapshot(queues=(queue("train", "gpu", running=False),)), "Queue root.train is stopped."),
        (
            group_plan(),
            snapshot(queues=(queue("train", "gpu", leaf=False), queue("low", path="root.train.low"))),
            "Queue root.train accepts no applications, the queues below it do: low.",
        ),
        (
            group_plan(),
            snapshot(queues=(queue("train", "gpu", submitters=("eve ", "bob ")),)),
            "User 'ada' may not submit to queue",
        ),
        (group_plan(memory="9g"), snapshot(), "the largest container is 6 GB (yarn.scheduler.maximum-allocation-mb)"),
        (
            group_plan(),
            snapshot(nodes=(replace(GENERAL, total=Resources(2048, 4)), node("g1", total=Resources(2560, 4, 2)))),
            "the largest container is 2.5 GB (yarn.nodemanager.resource.memory-mb of the largest node)",
        ),
        (
            group_plan(gpus_per_worker=3),
            snapshot(),
            "A container requests 3 GPUs, and the largest that YARN grants has 2. Write a smaller gpus_per_worker=",
        ),
        (
            group_plan(cores_per_worker=5),
            snapshot(),
            "A container requests 5 cores, and the largest that YARN grants has 4. Write cores_per_worker=4.",
        ),
        (
            group_plan(cores_per_worker=3, workers_per_container=2),
            snapshot(),
            "requests 6 cores, and the largest that YARN grants has 4. Write a smaller cores_per_worker= or",
        ),
        (
            stage_plan(Executors(cores=8)),
            snapshot(),
            "A container requests 8 cores, and the largest that YARN grants has 4. Write cores_per_executor=4.",
        ),
        (
            group_plan(),
            snapshot(nodes=(GENERAL, node("g1", total=replace(NODE, gpus=0)))),
            "No node of the cluster offers yarn.io/gpu.",
        ),
        (
            group_plan(isolation="whole_node"),
            snapshot(nodes=(*snapshot().nodes, node("g3", total=Resources(4096, 4, 2)))),
            "needs nodes of one size, and those of partition 'gpu' have 4096 MB, 6144 MB.",
        ),
    ],
)
def test_what_yarn_refuses_is_a_problem_with_its_fix(plan: Any, at: ClusterSnapshot, problem: str) -> None:
    assert problem in problems(plan, at)


@pytest.mark.parametrize(
    ("plan", "at", "warning"),
    [
        (group_plan(queue="no"), snapshot(), "There is no queue 'no' now; the queues are etl, train."),
        (
            group_plan(),
            snapshot(queues=(queue("train", "gpu", leaf=False, creates_queues=True),)),
            "Queue root.train accepts no applications itself; YARN creates queues below it by placement rules",
        ),
        (
            group_plan(gpus_per_worker=0),
            snapshot(nodes=snapshot().nodes[:1]),
            "No node of partition 'gpu' is running now",
        ),
        (group_plan(), snapshot(nodes=snapshot().nodes[1:]), "No node without a label is running now"),
        (
            group_plan(5),
            snapshot(),
            "2 nodes of partition 'gpu' have room for 4 of the 5 containers, each of 3072 MB, 1 core, 1 GPU. All must "
            "run at once. YARN accepts",
        ),
        (
            stage_plan(Executors(count=3, cores=2)),
            snapshot(),
            "1 node without a label has room for 1 of the 3 containers, each of 1536 MB, 2 cores. The stage runs in "
            "those. Write executors=1, or request less",
        ),
        (group_plan(5), snapshot(), "Write workers=4, or request less in each container."),
        (
            group_plan(),
            snapshot(queues=(queue("train", "gpu", max={"gpu": Resources(3072, 4, 4)}),)),
            "Queue root.train may use at most 3072 MB, 4 cores, 4 GPUs of partition 'gpu' now, and this needs 6144 MB",
        ),
        (
            group_plan(node_label=None),
            snapshot(),
            "1 node without a label has room for 0 of the 2 containers",
        ),
    ],
)
def test_what_yarn_may_accept_is_a_warning(plan: Any, at: ClusterSnapshot, warning: str) -> None:
    assert problems(plan, at) == ""
    assert warning in warnings(plan, at)


@pytest.mark.parametrize(
    "change", [{"running": False}, {"submitters": ("eve ",)}, {"leaf": False}, {"labels": frozenset()}]
)
def test_the_queue_that_placement_rules_replace_is_never_a_problem(change: dict[str, Any]) -> None:
    at = snapshot(queues=(queue("default", "gpu", **change),))
    assert problems(group_plan(queue="default"), at) == ""
    assert "placement rules may choose another queue" in warnings(group_plan(queue="default"), at)


@pytest.mark.parametrize("change", [{"running": False}, {"submitters": ("eve ",)}, {"labels": frozenset()}])
def test_where_placement_rules_replace_any_queue_none_is_a_problem(change: dict[str, Any]) -> None:
    at = snapshot(queues=(queue("train", "gpu", **change),))
    assert problems(group_plan(), at)
    at = replace(at, replaces_queues=True)
    assert problems(group_plan(), at) == ""
    assert "For the queue 'train' placement rules may choose another queue." in warnings(group_plan(), at)


@pytest.mark.parametrize("submitters", [("eve ", "ada "), ("eve staff",), None])
def test_an_administrator_a_group_and_an_unknown_acl_may_submit(submitters: tuple[str, ...] | None) -> None:
    at = snapshot(queues=(queue("train", "gpu", submitters=submitters),))
    assert (problems(group_plan(), at), warnings(group_plan(), at)) == ("", "")


@pytest.mark.parametrize(("memory", "fits"), [(1536, True), (1535, False)])
def test_the_driver_must_fit_a_node_of_its_own_partition(memory: int, fits: bool) -> None:
    nodes = (*snapshot().nodes, node("s1", "small", Resources(512, 4)), node("s2", "small", Resources(memory, 4)))
    at = snapshot(nodes=nodes, partitions=frozenset({"gpu", "small"}), queues=(queue("train", "gpu", "small"),))
    warning = warnings(group_plan(driver_label="small"), at)
    assert fits == (warning == "")
    assert fits or warning.startswith(
        "TrainOperator 'train': No node of partition 'small' has room for the driver's 1536 MB, 1 core"
    )


def test_a_driver_without_room_on_any_node_is_a_warning_though_its_executors_fit() -> None:
    """The executors have a partition of their own, so only the driver's nodes are too small."""
    at = snapshot(nodes=(replace(GENERAL, total=Resources(1024, 4)), *snapshot().nodes[1:]))
    assert "No node without a label has room for the driver's 1536 MB, 1 core" in warnings(group_plan(), at)


def test_a_plan_that_fits_is_submitted_in_containers_of_its_size() -> None:
    conf = fit.fit_to_cluster(group_plan(isolation="whole_node"), snapshot(), print).conf
    assert conf["spark.executor.memory"] == "512m"
    assert conf["spark.executor.memoryOverhead"] == f"{6144 - 512}m"


def test_a_plan_is_submitted_with_the_memory_that_it_has_now() -> None:
    """A retry after a memory kill requests more than the configuration was built for."""
    larger = group_plan().with_job(memory=Memory(heap="1g", native="2g"))
    for at in (snapshot(), None):
        assert fit.fit_to_cluster(larger, at, print).conf["spark.executor.memory"] == "1024m"


def test_a_plan_that_does_not_fit_is_refused_with_all_problems() -> None:
    at = snapshot(queues=(queue("train", running=False),))
    with pytest.raises(TrainyardError, match=r"is stopped(.|\n)*may not use label 'gpu'"):
        fit.fit_to_cluster(group_plan(), at, print)


def logged(plan: Plan, at: ClusterSnapshot) -> list[str]:
    lines: list[str] = []
    fit.fit_to_cluster(plan, at, lines.append)
    return lines


def test_warnings_are_logged_and_the_plan_is_submitted() -> None:
    [line] = logged(group_plan(5), snapshot())
    assert "have room for 4 of the 5 containers" in line


def test_with_preflight_warn_problems_are_logged_and_the_plan_is_submitted() -> None:
    [line] = logged(group_plan(memory="9g").with_job(preflight="warn"), snapshot())
    assert "the largest container is 6 GB" in line


def test_with_preflight_off_nothing_is_checked() -> None:
    assert logged(group_plan(memory="9g").with_job(preflight="off"), snapshot()) == []


@pytest.mark.parametrize(
    ("plan", "state"), [(group_plan(4), "fits"), (group_plan(5), "MAY NOT FIT"), (group_plan(queue="etl"), "DOES NOT")]
)
def test_the_table_has_the_state_of_each_check(plan: Plan, state: str) -> None:
    assert state in as_text(fit.check_plan(plan, snapshot())).split("\n\n")[0]


def test_the_table_has_what_is_needed_and_what_is_available() -> None:
    text = as_text(fit.check_plan(group_plan(5), snapshot()))
    row = next(line for line in text.splitlines() if line.startswith("train  room"))
    assert "5 x 3072 MB, 1 core, 1 GPU" in row and "room for 4" in row


def test_without_node_label_the_default_label_of_the_queue_is_used() -> None:
    at = snapshot(queues=(queue("train", "gpu", default_label="gpu"),))
    plan = group_plan(3, node_label=None)
    assert problems(plan, at) == ""
    assert next(f.found for f in fit.check_plan(plan, at) if f.subject == "room") == "room for 3"
