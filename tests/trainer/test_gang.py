"""The gang: ranks in one Spark barrier stage, and what is said when one of them fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import datasets
from trainer import bundle, gang
from trainyard.contract import events as event_log
from trainyard.contract.errors import TrainyardError
from trainyard.contract.events import EventLog
from trainyard.contract.spec import Place, TrainOptions, TrainSpec

pytestmark = pytest.mark.spark
RECIPES = "tests.trainer.recipes"


def spec(directory: Path, recipe: str = "linear", workers: int = 2, **fields: Any) -> TrainSpec:
    batches = datasets.write(
        directory / "batches", {"train": datasets.blobs(500), "validation": datasets.blobs(101, seed=1)}
    )
    place = Place(dag_id="d", run_id="r", task_id="train", directory=str(directory / "run"))
    options = {"options": TrainOptions(epochs=2, batch_size=40)} | fields
    return TrainSpec(
        place=place, recipe=f"{RECIPES}:{recipe}", batches=batches, model=str(directory / f"model{workers}"),
        workers=workers, **options,
    )  # fmt: skip


def run(spark: Any, job: TrainSpec) -> dict[str, Any]:
    events = EventLog(job.place.directory, job.place.task, "driver")
    try:
        return gang.run(spark, job, events)
    finally:
        events.flush()


def losses(directory: Path) -> list[float]:
    counters = [e for e in event_log.read(str(directory / "run")) if e["ph"] == "C" and e["name"] == "epoch"]
    return [e["args"][name] for e in counters for name in ("loss", "validation_loss", "accuracy")]


def test_two_ranks_learn_as_one_does_with_the_same_global_batches(spark: Any, tmp_path: Path) -> None:
    found = {}
    for workers in (1, 2):
        result = run(spark, spec(tmp_path / str(workers), workers=workers))
        assert result["workers"] == workers and result["epochs"] == 2
        found[workers] = losses(tmp_path / str(workers))
    assert found[1] == pytest.approx(found[2], rel=1e-5)
    rows = datasets.blobs(20, seed=3)
    one, two = (bundle.load(str(tmp_path / str(n) / f"model{n}")).output(rows) for n in (1, 2))
    assert one.numpy() == pytest.approx(two.numpy(), rel=1e-4, abs=1e-5)


def test_every_rank_leaves_its_events_and_rank_0_a_checkpoint(spark: Any, tmp_path: Path) -> None:
    run(spark, spec(tmp_path))
    found = event_log.read(str(tmp_path / "run"))
    names = {e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert names == {"driver", "rank 0", "rank 1"}
    spans = {e["name"] for e in found if e["ph"] == "X"}
    assert {"rendezvous", "data wait", "forward", "backward", "allreduce", "optimizer", "checkpoint"} <= spans
    assert (tmp_path / "run/checkpoints/train/epoch-00002.pt").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_the_rank_that_failed_is_named_not_its_peer(spark: Any, tmp_path: Path, rank: int) -> None:
    job = spec(tmp_path, "crashing", recipe_params={"rank": rank, "how": "raise"})
    with pytest.raises(TrainyardError) as error:
        run(spark, job)
    assert f"rank {rank} of 2 on" in str(error.value)
    assert "RuntimeError: the model had enough" in str(error.value)
    assert "recipes.py" in str(error.value), "a traceback leads to the user's line"


def test_a_killed_rank_ends_the_gang_with_one_clear_error(spark: Any, tmp_path: Path) -> None:
    job = spec(tmp_path, "crashing", recipe_params={"rank": 1, "how": "kill"})
    with pytest.raises(TrainyardError, match=r"rank 1 of 2 ended without a word: its process was killed"):
        run(spark, job)
    assert run(spark, spec(tmp_path / "again"))["epochs"] == 2, "the application can form another gang"


def test_more_ranks_than_slots_is_refused_at_once(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"workers=3 needs as many slots.*offers 2.*workers=2.*local\[3\]"):
        run(spark, spec(tmp_path, workers=3))


def test_a_global_batch_smaller_than_the_gang_is_refused(spark: Any, tmp_path: Path) -> None:
    job = spec(tmp_path, options=TrainOptions(batch_size=1))
    with pytest.raises(TrainyardError, match="batch_size=1 is the global batch, and smaller than the 2 ranks"):
        run(spark, job)


def test_missing_batches_are_named(spark: Any, tmp_path: Path) -> None:
    job = spec(tmp_path).model_copy(update={"batches": str(tmp_path / "nowhere")})
    with pytest.raises(TrainyardError, match=r"nowhere is not a batch dataset: it has no manifest\.json"):
        run(spark, job)


def test_the_state_of_events_is_json_that_perfetto_reads(spark: Any, tmp_path: Path) -> None:
    run(spark, spec(tmp_path, workers=1))
    lines = (tmp_path / "run/events/train/rank 0.jsonl").read_text().splitlines()
    for line in lines:
        event = json.loads(line)
        assert {"ph", "name", "ts", "pid", "tid"} <= event.keys()
        assert isinstance(event["pid"], int) and isinstance(event["ts"], int)
