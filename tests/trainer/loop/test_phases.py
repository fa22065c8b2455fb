"""Where a rank's time goes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.trainer import datasets
from tests.trainer.runs import EVERY, RECIPES
from tests.trainer.workers import Workers
from trainyard.report import timeline
from trainyard.schemas import events
from trainyard.schemas.events import EventLog
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.loop.phases import COMMUNICATION_WAIT, SPANS, Phases
from trainyard.trainer.world import World


def test_waiting_for_an_exchange_is_a_phase_of_its_own_and_not_part_of_the_one_it_lies_in() -> None:
    phases = Phases(None)
    with phases.phase("backward"):
        began = time.perf_counter_ns()
        while (passed := time.perf_counter_ns() - began) < 20_000_000:
            pass
        phases.on_communication(time.time_ns(), passed, True)
    assert phases.totals[COMMUNICATION_WAIT] == passed / 1e9
    assert 0 <= phases.totals["backward"] < passed / 1e9


def test_an_exchange_beside_the_phase_takes_nothing_from_it() -> None:
    phases = Phases(None)
    with phases.phase("backward"):
        phases.on_communication(time.time_ns(), 10**12, False)
    assert set(phases.totals) == {"backward"} and phases.totals["backward"] > 0


def test_it_is_known_where_a_rank_is() -> None:
    phases = Phases(None)
    with phases.phase("forward"):
        before = phases.here.entered
        assert phases.here.phase == "forward"
    with phases.phase("backward"):
        assert (phases.here.phase, phases.here.entered) == ("backward", before + 1)


def test_the_spans_of_a_run_stay_few_however_many_epochs_it_has(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path), "train", "rank 0")
    phases = Phases(log)
    for _ in range(200):
        for _ in range(500):
            phases.add("forward", 0, 1)
        phases.end_epoch()
    log.flush()
    told = events.read(str(tmp_path))
    assert sum(event["name"] == "forward" for event in told) <= SPANS
    assert sum(event["name"] == "seconds" for event in told) == 200


def spent(world: World, batches: str, folder: str, strategy: object) -> tuple[list[dict[str, float]], float, str]:
    log = EventLog(folder, "train", f"rank {world.rank}", world.rank)
    began = time.perf_counter()
    fitted = fit(
        f"{RECIPES}:linear", dataset=batches, model=f"{folder}/model", world=world, epochs=3, batch_size=20,
        strategy=strategy, phases=Phases(log), checkpoints=f"{folder}/checkpoints",
    )  # fmt: skip
    passed = time.perf_counter() - began
    log.flush()
    return [dict(rank.seconds) for rank in fitted.phase_seconds], passed, fitted.limit


@pytest.mark.ranks
@pytest.mark.parametrize("strategy", ["allreduce", "averaging", "threshold", "diloco", "horovod"])
def test_every_rank_knows_what_all_ranks_spent(tmp_path: Path, strategy: str) -> None:
    batches = datasets.write(tmp_path / "b", {"train": datasets.blobs(500), "validation": datasets.blobs(101, seed=1)})
    with Workers(2) as gang:
        one, two = gang(spent, batches, str(tmp_path), EVERY[strategy])
    assert one[0] == two[0] and len(one[0]) == 2 and one[2] == two[2]
    every = {"data wait", "forward", "backward", "wait for communication", "optimizer", "checkpoint", "validate"}
    for seconds, whole in zip(one[0], (one[1], two[1]), strict=True):
        assert every <= set(seconds)
        assert 0 < sum(seconds.values()) <= whole, "phases do not overlap"
    names = {e["name"] for e in events.read(str(tmp_path)) if e["ph"] == "X"}
    assert {"communication", "wait for communication"} <= names


def validated(world: World, batches: str, folder: str) -> dict[str, float]:
    log = EventLog(folder, "train", f"rank {world.rank}", world.rank)
    phases = Phases(log)
    fit(f"{RECIPES}:dawdling", dataset=batches, model=f"{folder}/model", world=world, epochs=2, phases=phases)
    log.flush()
    return dict(phases.totals)


@pytest.mark.ranks
def test_waiting_for_a_rank_that_still_validates_is_neither_validating_nor_part_of_a_step(tmp_path: Path) -> None:
    batches = datasets.write(tmp_path / "b", {"train": datasets.blobs(500), "validation": datasets.blobs(101, seed=1)})
    with Workers(2) as gang:
        _, quick = gang(validated, batches, str(tmp_path))
    drawn = timeline.steps(events.read(str(tmp_path)))
    assert drawn and "data wait" in drawn.names, "what is drawn begins with an epoch, not where the ranks meet after it"
    assert quick["wait for workers"] > quick["validate"]
