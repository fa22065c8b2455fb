"""The gang: ranks in one Spark barrier stage, and what is said when one of them fails."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.trainer import datasets
from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas import events as event_log
from trainyard.schemas import worker_progress
from trainyard.schemas.events import EventLog
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec
from trainyard.trainer.group import heartbeats, supervisor
from trainyard.trainer.group.outcome import Outcome
from trainyard.trainer.model.trained_model import load_model

pytestmark = pytest.mark.spark
RECIPES = "tests.trainer.recipes"


def spec(directory: Path, recipe: str = "linear", workers: int = 2, **fields: Any) -> TrainSpec:
    batches = datasets.write(
        directory / "dataset", {"train": datasets.blobs(500), "validation": datasets.blobs(101, seed=1)}
    )
    task_key = TaskKey(dag_id="d", run_id="r", task_id="train", directory=str(directory / "run"))
    options = {"options": TrainOptions(epochs=2, batch_size=40)} | fields
    return TrainSpec(
        task_key=task_key, recipe=f"{RECIPES}:{recipe}", dataset=batches, model=str(directory / f"model{workers}"),
        workers=workers, **options,
    )  # fmt: skip


def run(spark: Any, job: TrainSpec) -> dict[str, Any]:
    events = EventLog(job.task_key.directory, job.task_key.task, "driver")
    try:
        return supervisor.run(spark, job, events)
    finally:
        events.flush()


def losses(directory: Path) -> list[float]:
    counters = [e for e in event_log.read(str(directory / "run")) if e["ph"] == "C" and e["name"] == "epoch"]
    return [e["args"][name] for e in counters for name in ("loss", "validation_loss", "accuracy")]


def test_a_version_or_what_came_since_is_trained_on_and_pinned_meanwhile(spark: Any, tmp_path: Path) -> None:
    batches = str(tmp_path / "grown")
    for number, day in enumerate((300, 100), start=1):
        rows = spark.range(day).selectExpr("array(float(id % 3), 1f) as x", "id % 3 as label", "'train' as split")
        write = rows.write.format("trainyard").mode("append").option("splitColumn", "split")
        write.option("partition", f"day {number}").save(batches)
    for asked, version, trained in (({}, 2, 400), ({"dataset_version": 1}, 1, 300), ({"dataset_since": 1}, 2, 100)):
        notes = tmp_path / f"notes {trained}"
        job = spec(
            tmp_path / str(trained), "noting", workers=1, recipe_params={"file": str(notes), "dataset": batches},
            options=TrainOptions(epochs=1, batch_size=40),
        )  # fmt: skip
        result = run(spark, job.model_copy(update={"dataset": batches} | asked))
        steps = [line.split(" ", 1) for line in notes.read_text().splitlines()]
        assert sum(int(rows) for rows, _ in steps) == trained
        assert {pins for _, pins in steps} == {f"['{version:08d}']"}
        assert result["dataset_version"] == version
    assert storage.list_names(f"{batches}/pins") == []


@pytest.mark.parametrize("share", [None, 0.4])
def test_two_ranks_learn_as_one_does_with_the_same_global_batches(
    spark: Any, tmp_path: Path, share: float | None
) -> None:
    other = datasets.write(tmp_path / "other", {"train": datasets.blobs(90, seed=2)})
    mix = [{"dataset": other, "share": share}] if share else []
    found = {}
    for workers in (1, 2):
        result = run(spark, spec(tmp_path / str(workers), workers=workers, mix=mix))
        assert result["workers"] == workers and result["epochs"] == 2
        found[workers] = losses(tmp_path / str(workers))
    assert found[1] == pytest.approx(found[2], rel=1e-5)
    rows = datasets.blobs(20, seed=3)
    models = [load_model(str(tmp_path / str(n) / f"model{n}")) for n in (1, 2)]
    one, two = (model.output(rows) for model in models)
    assert [mixed.dataset for mixed in models[1].artifact.mix] == ([other] if share else [])
    assert one.numpy() == pytest.approx(two.numpy(), rel=1e-4, abs=1e-5)


def test_every_rank_leaves_its_events_and_rank_0_a_checkpoint(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PROGRESS_SECONDS", 0.01)
    job = spec(tmp_path)
    run(spark, job)
    told = worker_progress.read_latest(job.task_key)
    assert told and told.at <= time.time(), "the driver told where its ranks were"
    found = event_log.read(str(tmp_path / "run"))
    names = {e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert names == {"driver", "rank 0", "rank 1"}
    spans = {e["name"] for e in found if e["ph"] == "X"}
    assert {"rendezvous", "data wait", "forward", "backward", "optimizer", "checkpoint"} <= spans
    assert {"communication", "wait for communication"} <= spans
    assert (tmp_path / "run/checkpoints/train/step-00000026-gang-1/checkpoint.json").exists()


def test_a_gang_says_where_other_formats_and_the_models_of_its_epochs_lie(spark: Any, tmp_path: Path) -> None:
    result = run(spark, spec(tmp_path, formats=("pt2",), epoch_models=True, strategy="fsdp"))
    assert result["formats"] == {"pt2": f"{tmp_path}/model2/{result['weights_sha256'][:16]}/model.pt2"}
    assert Path(result["formats"]["pt2"]).is_file()
    epochs = [load_model(uri).artifact for uri in result["epoch_models"]]
    assert [epoch.epochs for epoch in epochs] == [1, 2]
    assert epochs[result["best_epoch"] - 1].weights_sha256 == result["weights_sha256"]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_rank_that_failed_is_named_not_its_peer(spark: Any, tmp_path: Path, rank: int) -> None:
    job = spec(tmp_path, "crashing", recipe_params={"rank": rank, "how": "raise"})
    with pytest.raises(TrainyardError) as error:
        run(spark, job)
    assert f"rank {rank} of 2 on" in str(error.value)
    assert "RuntimeError: the model had enough" in str(error.value)
    assert "recipes.py" in str(error.value), "a traceback leads to the user's line"


def test_a_killed_rank_ends_the_gang_with_one_clear_error(spark: Any, tmp_path: Path) -> None:
    job = spec(tmp_path, "crashing", recipe_params={"rank": 1, "how": "kill"}, max_restarts=0)
    with pytest.raises(TrainyardError, match=r"rank 1 of 2 ended without a word: its process was killed"):
        run(spark, job)
    assert run(spark, spec(tmp_path / "again"))["epochs"] == 2, "the application can form another gang"


def ordered(directory: Path, orders: str = "", **fields: Any) -> TrainSpec:
    """A job whose ranks do as the orders say, with a checkpoint every three updates; 26 of them are 2 epochs."""
    directory.mkdir(exist_ok=True)
    if orders:
        (directory / "orders").write_text(orders)
    options = TrainOptions(epochs=fields.pop("epochs", 2), batch_size=40, checkpoint_steps=3)
    return spec(directory, "ordered", recipe_params={"orders": f"{directory}/orders"}, **{"options": options} | fields)


def starts(directory: Path) -> int:
    return len((directory / "pids").read_text().split()) // 2


def resumed(directory: Path) -> set[int]:
    """The updates after which gangs went on; there are 13 an epoch."""
    found = [e["args"] for e in event_log.read(str(directory / "run")) if e["name"] == "resume"]
    return {13 * (at["epoch"] - 1) + at["step"] for at in found}


def test_a_gang_that_lost_a_rank_starts_again_from_its_last_checkpoint(spark: Any, tmp_path: Path) -> None:
    found = run(spark, ordered(tmp_path / "disturbed", "1 17 kill"))
    assert (found["restarts"], found["epochs"], starts(tmp_path / "disturbed")) == (1, 2, 2)
    run(spark, ordered(tmp_path / "undisturbed"))
    assert losses(tmp_path / "disturbed") == pytest.approx(losses(tmp_path / "undisturbed"), rel=1e-6)
    events = event_log.read(str(tmp_path / "disturbed" / "run"))
    (restart,) = [e for e in events if e["name"] == "restart"]
    assert "rank 1 of 2 ended without a word" in restart["args"]["reason"]
    assert resumed(tmp_path / "disturbed") <= {13, 16}, "the last one may not have been whole yet"
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {"driver", "rank 0", "rank 1", "rank 0, start 2", "rank 1, start 2"}


def test_a_gang_that_hangs_is_ended_and_starts_again_and_the_rank_that_did_not_arrive_is_named(
    spark: Any, tmp_path: Path
) -> None:
    """A minute is more than any phase takes that goes on."""
    found = run(spark, ordered(tmp_path, "1 17 hang", hang_minutes=1))
    assert (found["restarts"], found["epochs"], starts(tmp_path)) == (1, 2, 2)
    (restart,) = [e for e in event_log.read(str(tmp_path / "run")) if e["name"] == "restart"]
    told = restart["args"]["reason"]
    assert "the gang hangs in epoch 2, step 4: rank 1 on " in told
    assert "in 'forward' for 6" in told and told.endswith("the others wait in 'backward'")
    assert resumed(tmp_path) <= {13, 16}
    pids = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
    assert sum(psutil.pid_exists(pid) for pid in pids) <= 2, "those of the second gang"


def test_the_drivers_clock_is_the_one_that_spans_lie_on(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 3600 * 10**9
    monkeypatch.setattr(heartbeats, "now", lambda: time.time_ns() + ahead)
    began = time.time()
    run(spark, spec(tmp_path))
    found = event_log.read(str(tmp_path / "run"))
    steps = [e["ts"] / 1e6 for e in found if e["name"] == "forward"]
    assert all(began + 3600 <= at <= time.time() + 3600 for at in steps)
    told = [e["args"] for e in found if e["name"] == "clock"]
    assert [abs(clock["behind_ms"] - ahead / 1e6) <= clock["error_ms"] for clock in told] == [True, True]


def test_no_process_of_a_killed_gang_stays(spark: Any, tmp_path: Path) -> None:
    run(spark, ordered(tmp_path, "0 5 kill"))
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(set(pids)) in (3, 4), "Spark may use the surviving process again"
    assert sum(psutil.pid_exists(pid) for pid in set(pids)) <= 2


def test_without_progress_a_gang_starts_again_a_few_times_only(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match="rank 1 of 2 ended without a word"):
        run(spark, ordered(tmp_path, "1 2 kill always", max_restarts=1))
    assert starts(tmp_path) == 2


def test_progress_refills_the_budget_of_starts(spark: Any, tmp_path: Path) -> None:
    found = run(spark, ordered(tmp_path, "1 7 kill always", max_restarts=1, epochs=1))
    assert found["restarts"] == starts(tmp_path) - 1 >= 2
    assert found["epochs"] == 1


def test_what_the_users_code_raises_is_not_tried_again(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match="RuntimeError: the model had enough"):
        run(spark, ordered(tmp_path, "1 9 raise"))
    assert starts(tmp_path) == 1


def test_another_try_goes_on_where_the_one_before_it_ended(spark: Any, tmp_path: Path) -> None:
    job = ordered(tmp_path, "1 17 kill", max_restarts=0)
    with pytest.raises(TrainyardError):
        run(spark, job)
    assert run(spark, job)["restarts"] == 0
    assert resumed(tmp_path) and resumed(tmp_path) <= {13, 16}


def test_a_task_that_succeeded_and_is_cleared_begins_anew(spark: Any, tmp_path: Path) -> None:
    job, began = ordered(tmp_path), time.time()
    output = run(spark, job)
    RunRecord(
        task_key=job.task_key, job="train", application="a", started_at=began, seconds=time.time() - began,
        status="succeeded", output=output,
    ).save()  # fmt: skip
    run(spark, job)
    assert not resumed(tmp_path)


def test_a_gang_takes_the_room_that_there_is(spark: Any, tmp_path: Path) -> None:
    """Three ranks are asked for, one is enough, there are two slots; the losses are those of any number."""
    found = run(spark, ordered(tmp_path / "elastic", workers=3, min_workers=1))
    assert found["workers"] == 2
    run(spark, ordered(tmp_path / "one", workers=1))
    assert losses(tmp_path / "elastic") == pytest.approx(losses(tmp_path / "one"), rel=1e-5)


@pytest.mark.parametrize("strategy", ["averaging", "threshold", "diloco", "fsdp", "horovod"])
def test_every_strategy_trains_in_a_gang(spark: Any, tmp_path: Path, strategy: str) -> None:
    found = run(spark, spec(tmp_path, strategy=strategy))
    assert found["epochs"] == 2 and found["bytes_sent"] > 0
    assert load_model(str(tmp_path / "model2")).output(datasets.blobs(5)).shape == (5, 3)


def outcome(rank: int, ended: Any, at: float, error: str | None = "it") -> Outcome:
    return Outcome(rank, "here", at, ended, error=error)


def test_the_first_cause_is_told_and_not_what_followed_from_it() -> None:
    with pytest.raises(TrainyardError, match="rank 1 of 3 on here failed: mine"):
        supervisor.result([outcome(0, "cut off", 1.0), outcome(1, "failed", 3.0, "mine"), outcome(2, "failed", 4.0)])
    with pytest.raises(supervisor.CutOffError, match="rank 2 of 3"):
        supervisor.result([outcome(0, "cut off", 1.0), outcome(1, "done", 2.0, None), outcome(2, "terminated", 3.0)])


def test_more_ranks_than_slots_is_refused_at_once(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"workers=3 needs as many slots.*offers 2.*workers=2.*local\[3\]"):
        run(spark, spec(tmp_path, workers=3))


def test_a_global_batch_smaller_than_the_gang_is_refused(spark: Any, tmp_path: Path) -> None:
    job = spec(tmp_path, options=TrainOptions(batch_size=1))
    with pytest.raises(TrainyardError, match="batch_size=1 is the global batch, and smaller than the 2 ranks"):
        run(spark, job)


def test_missing_batches_are_named(spark: Any, tmp_path: Path) -> None:
    job = spec(tmp_path).model_copy(update={"dataset": str(tmp_path / "nowhere")})
    with pytest.raises(TrainyardError, match=r"nowhere is not a dataset: it has no manifest\.json"):
        run(spark, job)


def test_the_state_of_events_is_json_that_perfetto_reads(spark: Any, tmp_path: Path) -> None:
    run(spark, spec(tmp_path, workers=1))
    lines = (tmp_path / "run/events/train/rank 0.jsonl").read_text().splitlines()
    for line in lines:
        event = json.loads(line)
        assert {"ph", "name", "ts", "pid", "tid"} <= event.keys()
        assert isinstance(event["pid"], int) and isinstance(event["ts"], int)
