"""The time of a worker in each phase."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.trainer import datasets
from tests.trainer.runs import RECIPES, STRATEGIES
from tests.trainer.workers import Workers
from trainyard.report import timeline
from trainyard.schemas.runs import events
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.phases import Phase
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.measuring.phases import MAX_SPANS, Phases
from trainyard.trainer.world import World


def test_waiting_for_communication_is_a_phase_of_its_own_and_subtracted_from_the_surrounding_one() -> None:
    phases = Phases(None)
    with phases.measure(Phase.BACKWARD):
        began = time.perf_counter_ns()
        while (passed := time.perf_counter_ns() - began) < 20_000_000:
            pass
        phases.on_communication(time.time_ns(), passed, True)
    assert phases.totals[Phase.COMMUNICATION_WAIT] == passed / 1e9
    assert 0 <= phases.totals["backward"] < passed / 1e9


def test_communication_that_overlaps_a_phase_is_not_subtracted() -> None:
    phases = Phases(None)
    with phases.measure(Phase.BACKWARD):
        phases.on_communication(time.time_ns(), 10**12, False)
    assert set(phases.totals) == {"backward"} and phases.totals["backward"] > 0


def test_the_current_phase_is_recorded() -> None:
    phases = Phases(None)
    with phases.measure(Phase.FORWARD):
        before = phases.current.entered
        assert phases.current.phase == "forward"
    with phases.measure(Phase.BACKWARD):
        assert (phases.current.phase, phases.current.entered) == ("backward", before + 1)


def test_the_number_of_spans_is_limited_for_any_number_of_epochs(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path), "train", "worker 0")
    phases = Phases(log)
    for _ in range(200):
        for _ in range(500):
            phases.add(Phase.FORWARD, 0, 1)
        phases.end_epoch()
    log.flush()
    logged = events.read(str(tmp_path))
    assert sum(event["name"] == "forward" for event in logged) <= MAX_SPANS
    assert sum(event["name"] == "steps" for event in logged) <= 200, "one for each epoch"
    assert sum(event["name"] == "seconds" for event in logged) == 200


def test_steps_without_spans_of_their_own_are_one_span_with_their_number(tmp_path: Path) -> None:
    """Otherwise a worker would look idle in the rest of an epoch."""
    log = EventLog(str(tmp_path), "train", "worker 0")
    phases, step = Phases(log), 1_000_000
    for number in range(1000):
        phases.add(Phase.FORWARD, number * step, step)
    phases.add(Phase.VALIDATE, 1000 * step, step)
    phases.end_epoch()
    log.flush()
    spans = [event for event in events.read(str(tmp_path)) if event["ph"] == "X"]
    drawn, steps, validated = spans[:-2], *spans[-2:]
    assert {span["name"] for span in drawn} == {"forward"}
    assert (steps["name"], steps["args"]) == ("steps", {"omitted": 1000 - len(drawn)})
    assert steps["ts"] == drawn[-1]["ts"] + drawn[-1]["dur"] and steps["ts"] + steps["dur"] == validated["ts"]
    assert validated["name"] == "validate", "what is no step is recorded"


def measure(world: World, batches: str, folder: str, strategy: object) -> tuple[list[dict[str, float]], float, str]:
    log = EventLog(folder, "train", f"worker {world.rank}", world.rank)
    began = time.perf_counter()
    fitted = fit(
        f"{RECIPES}:linear", dataset=batches, model=f"{folder}/model", world=world, epochs=3, batch_size=20,
        strategy=strategy, phases=Phases(log), checkpoints=f"{folder}/checkpoints",
    )  # fmt: skip
    passed = time.perf_counter() - began
    log.flush()
    return [dict(rank.seconds) for rank in fitted.phase_seconds], passed, str(fitted.bottleneck)


@pytest.mark.ranks
@pytest.mark.parametrize(
    "strategy",
    [
        "allreduce",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("averaging", "threshold", "diloco", "horovod")),
    ],
)
def test_every_worker_gets_the_phases_of_all_workers(tmp_path: Path, strategy: str) -> None:
    batches = datasets.write(tmp_path / "b", {"train": datasets.blobs(500), "validation": datasets.blobs(101, seed=1)})
    with Workers(2) as workers:
        one, two = workers(measure, batches, str(tmp_path), STRATEGIES[strategy])
    assert one[0] == two[0] and len(one[0]) == 2 and one[2] == two[2]
    every = {"data wait", "forward", "backward", "wait for communication", "optimizer", "checkpoint", "validate"}
    for seconds, total in zip(one[0], (one[1], two[1]), strict=True):
        assert every <= set(seconds)
        assert 0 < sum(seconds.values()) <= total, "phases do not overlap"
    names = {e["name"] for e in events.read(str(tmp_path)) if e["ph"] == "X"}
    assert {"communication", "wait for communication"} <= names


def validate(world: World, batches: str, folder: str) -> dict[str, float]:
    log = EventLog(folder, "train", f"worker {world.rank}", world.rank)
    phases = Phases(log)
    fit(f"{RECIPES}:slow_validation", dataset=batches, model=f"{folder}/model", world=world, epochs=2, phases=phases)
    log.flush()
    return dict(phases.totals)


@pytest.mark.full
@pytest.mark.ranks
def test_waiting_for_a_worker_that_still_validates_is_neither_validation_nor_part_of_a_step(tmp_path: Path) -> None:
    batches = datasets.write(tmp_path / "b", {"train": datasets.blobs(500), "validation": datasets.blobs(101, seed=1)})
    with Workers(2) as workers:
        _, quick = workers(validate, batches, str(tmp_path))
    trace = events.read(str(tmp_path))
    steps = timeline.find_steps(trace)
    assert steps
    names = {event["name"] for event in trace if event["ph"] == "X" and steps[0] <= event["ts"] < steps[1]}
    assert "data wait" in names, "the steps begin with an epoch, not at the synchronization after it"
    assert quick["wait for workers"] > quick["validate"]


def test_an_import_is_the_current_phase_within_another() -> None:
    phases = Phases(None)
    with phases.measure(Phase.SET_UP):
        with phases.importing():
            assert phases.current.phase == Phase.IMPORT
        assert phases.current.phase == Phase.SET_UP
    assert set(phases.totals) == {"set up"}
