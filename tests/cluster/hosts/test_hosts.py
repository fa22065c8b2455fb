"""A pipeline and its faults on a Hadoop of several hosts, each with a network of its own."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from stack.hosts import demo
from stack.hosts.bed import run_hosts
from stack.hosts.hadoop import GATEWAY, run_hadoop
from tests.cluster.hosts.bed import NODES, YARN_EXPIRY, Bed, Job, Step
from tests.cluster.hosts.job import EPOCHS
from tests.cluster.jobs import wait_for

pytestmark = [pytest.mark.hosts, pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]

SHOWN = ("restart", "wait for slots", "import", "rendezvous", "find checkpoint", "set up")
"""The events of the driver and of workers that a timeline has."""
DISK_MB = 2048
"""The size of the disk of a GPU node."""
EPOCH_STEPS = 100
"""The steps of both workers in an epoch."""
FIRST_EPOCH, SECOND_EPOCH = EPOCH_STEPS // 2, EPOCH_STEPS * 3 // 2
"""The steps of both workers until the middle of an epoch."""


@pytest.mark.faults
def test_the_digits_run_on_several_hosts_from_a_gateway(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["demo", "digits", "--home", str(tmp_path / "home")])
    assert demo.main() == 0
    printed = capfd.readouterr().out
    trained_on = re.findall(r"^digits\.train .*executor +train +(\S+):8041 +gpu", printed, re.MULTILINE)
    assert len(trained_on) == 2 and set(trained_on) <= {"gpunode1", "gpunode2"}
    assert re.search(r"^digits\.predict .*executor +etl +node1:8041", printed, re.MULTILINE)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    folder = tmp_path_factory.mktemp("hosts")
    names = (GATEWAY, *dict.fromkeys(NODES.values()))
    disks = {name: DISK_MB for name in names if name.startswith("gpu")}
    with run_hosts(names, folder, disks) as hosts, run_hadoop(hosts, folder / "hadoop", NODES, YARN_EXPIRY) as hadoop:
        bed = Bed(hadoop, folder)
        assert bed.start("export", "data").finish()["errors"] == []
        yield bed


@pytest.fixture(scope="module")
def undisturbed(bed: Bed) -> dict[str, Any]:
    """The result of a training without a fault."""
    training = bed.start("train", "undisturbed")
    result = training.finish()
    assert len(training.read_steps()) == EPOCHS * EPOCH_STEPS
    return result


@pytest.fixture
def training(request: pytest.FixtureRequest, bed: Bed, undisturbed: dict[str, Any]) -> Iterator[Job]:
    """A training after `SECOND_EPOCH` steps, or a parameter. Afterwards all is as before."""
    training = bed.start("train", re.sub(r"\W", "_", request.node.name)[:60])
    try:
        training.wait_for_steps(getattr(request, "param", SECOND_EPOCH))
        yield training
    finally:
        bed.end(training)


def check(bed: Bed, undisturbed: dict[str, Any], training: Job) -> dict[str, Any]:
    """Return the result of a training, of which nothing is lost, doubled or left behind."""
    result = training.finish()
    assert "output" in result, result["errors"]
    assert result["output"]["weights_sha256"] == undisturbed["output"]["weights_sha256"]
    assert [final for state, final in result["states"]].count("SUCCEEDED") == 1, result["states"]
    assert {state for state, _ in result["states"]} <= {"FINISHED", "FAILED", "KILLED"}
    wait_for(lambda: not bed.find_containers(), 60)
    print(f"\nlongest pause without a step: {find_pause(training.read_steps()):.1f} s")
    print(*result["errors"], *result["output"]["warnings"], sep="\n")
    return result


def find_pause(steps: list[Step]) -> float:
    """Return the longest time between a step and the next one, of any worker, in seconds."""
    return max(following.at - step.at for step, following in pairwise(steps))


def find_worker(training: Job) -> str:
    """Return the host of a worker, the one that has computed a step last."""
    return training.read_steps()[-1].host


def print_timeline(silence: float, training: Job, result: dict[str, Any]) -> None:
    """Print what followed a silence, in seconds since it began, until the end of the job."""
    steps = training.read_steps()
    before = {step.process for step in steps if step.at <= silence}
    first = next(step for step in steps if step.process not in before)
    rows = [(at, seconds, f"{name} {args or ''}") for at, seconds, name, args in result["events"] if name in SHOWN]
    rows += [
        (first.at, 0.0, f"first step, on {first.host}"),
        (steps[-1].at, 0.0, "last step"),
        (result["ended"], 0.0, "end"),
    ]
    lines = [f"{at - silence:6.1f} s  +{seconds:4.1f} s  {text}" for at, seconds, text in sorted(rows) if at > silence]
    print("", *lines, sep="\n")


@pytest.mark.faults
def test_a_worker_whose_host_is_switched_off_is_replaced(bed: Bed, training: Job, undisturbed: dict[str, Any]) -> None:
    silence = time.time()
    bed.hadoop.hosts[find_worker(training)].switch_off()
    result = check(bed, undisturbed, training)
    print_timeline(silence, training, result)
    assert (result["output"]["restarts"], result["errors"]) == (1, [])


@pytest.mark.faults
def test_a_cable_that_is_cut_for_twenty_seconds_restarts_nothing(
    bed: Bed, training: Job, undisturbed: dict[str, Any]
) -> None:
    host = bed.hadoop.hosts[find_worker(training)]
    host.cut_cable()
    time.sleep(20)
    host.connect_cable()
    result = check(bed, undisturbed, training)
    assert (result["output"]["restarts"], result["errors"]) == (0, [])


@pytest.mark.faults
def test_a_worker_whose_cable_is_cut_for_long_is_replaced_and_fenced(
    bed: Bed, training: Job, undisturbed: dict[str, Any]
) -> None:
    host, silence = bed.hadoop.hosts[find_worker(training)], time.time()
    host.cut_cable()
    number = len({step.process for step in training.read_steps()})
    wait_for(lambda: len({step.process for step in training.read_steps()}) > number)
    host.connect_cable()
    result = check(bed, undisturbed, training)
    print_timeline(silence, training, result)
    assert (result["output"]["restarts"], result["errors"]) == (1, [])


@pytest.mark.faults
@pytest.mark.parametrize("training", [FIRST_EPOCH], indirect=True, ids=["first epoch"])
def test_a_training_whose_driver_is_on_a_host_that_reboots_is_resumed_by_the_next_attempt(
    bed: Bed, training: Job, undisturbed: dict[str, Any]
) -> None:
    name = next(line.split(":")[0] for line in bed.find_containers() if "ApplicationMaster" in line)
    before = {step.process for step in training.read_steps()}
    bed.hadoop.hosts[name].switch_off()
    time.sleep(20)
    bed.hadoop.reboot(name)
    result = check(bed, undisturbed, training)
    assert len(result["errors"]) == 1
    resumed = sum(step.process not in before for step in training.read_steps())
    print(f"{resumed} of {EPOCHS * EPOCH_STEPS} steps were computed by the next attempt")
    assert 0 < resumed < EPOCHS * EPOCH_STEPS


@pytest.mark.faults
def test_a_checkpoint_that_a_data_node_does_not_store_is_a_warning_of_the_result(
    bed: Bed, training: Job, undisturbed: dict[str, Any]
) -> None:
    bed.hadoop.hosts["data2"].switch_off()
    result = check(bed, undisturbed, training)
    assert (result["output"]["restarts"], result["errors"]) == (0, [])
    assert any("of the checkpoints" in text.lower() for text in result["output"]["warnings"])


@pytest.mark.faults
def test_a_worker_on_a_full_disk_is_replaced_when_the_disk_has_room_and_its_node_manager_runs_again(
    bed: Bed, training: Job, undisturbed: dict[str, Any]
) -> None:
    """A NodeManager ends when it cannot write that the container of a killed executor has ended."""
    name = find_worker(training)
    host = bed.hadoop.hosts[name]
    host.fill_disk()
    host.run("pkill", "-KILL", "-f", "YarnCoarseGrainedExecutorBackend")
    wait_for(bed.hadoop.find_ended)
    host.run("rm", "/tmp/full")
    bed.hadoop.start(name)
    result = check(bed, undisturbed, training)
    assert (result["output"]["restarts"], result["errors"]) == (1, [])
