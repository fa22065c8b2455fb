"""The worker group: workers in one Spark barrier stage, restarts, and the errors of failed workers."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.trainer import datasets
from trainyard.errors import TrainyardError, UnavailableError
from trainyard.files import storage
from trainyard.schemas.datasets.manifest import read_current
from trainyard.schemas.runs import events as event_log
from trainyard.schemas.runs import run_record, worker_progress
from trainyard.schemas.runs.checkpoint import list_checkpoints
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec
from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.group import heartbeats, supervisor
from trainyard.trainer.group import worker as group_worker
from trainyard.trainer.group.heartbeats import HeartbeatMonitor, HeartbeatSender
from trainyard.trainer.group.outcome import Outcome, build_failure
from trainyard.trainer.measuring.phases import CurrentPhase
from trainyard.trainer.model.artifacts.trained_model import load_model

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
        return supervisor.run(spark, job, events).to_xcom()
    finally:
        events.flush()


def read_losses(directory: Path) -> list[float]:
    counters = [e for e in event_log.read(str(directory / "run")) if e["ph"] == "C" and e["name"] == "epoch"]
    return [e["args"][name] for e in counters for name in ("loss", "validation_loss", "accuracy")]


@pytest.mark.full
def test_a_version_or_the_rows_since_one_are_trained_on_and_leased_meanwhile(spark: Any, tmp_path: Path) -> None:
    batches = str(tmp_path / "grown")
    for number, day in enumerate((300, 100), start=1):
        rows = spark.range(day).selectExpr("array(float(id % 3), 1f) as x", "id % 3 as label", "'train' as split")
        write = rows.write.format("trainyard").mode("append").option("splitColumn", "split")
        write.option("partition", f"day {number}").save(batches)
    for fields, version, rows_trained in (
        ({}, 2, 400),
        ({"dataset_version": 1}, 1, 300),
        ({"dataset_since": 1}, 2, 100),
    ):
        records = tmp_path / f"records {rows_trained}"
        job = spec(
            tmp_path / str(rows_trained), "recording", workers=1,
            recipe_params={"file": str(records), "dataset": batches}, options=TrainOptions(epochs=1, batch_size=40),
        )  # fmt: skip
        result = run(spark, job.model_copy(update={"dataset": batches} | fields))
        steps = [line.split(" ", 1) for line in records.read_text().splitlines()]
        assert sum(int(rows) for rows, _ in steps) == rows_trained
        assert {leases for _, leases in steps} == {f"['{version:08d}']"}
        assert result["dataset_version"] == version
    assert storage.list_names(f"{batches}/leases") == []


@pytest.mark.parametrize("share", [None, pytest.param(0.4, marks=pytest.mark.full)])
def test_two_workers_learn_the_same_as_one(spark: Any, tmp_path: Path, share: float | None) -> None:
    other = datasets.write(tmp_path / "other", {"train": datasets.blobs(90, seed=2)})
    mix = [{"dataset": other, "share": share}] if share else []
    losses_by_size = {}
    for workers in (1, 2):
        result = run(spark, spec(tmp_path / str(workers), workers=workers, mix=mix))
        assert result["workers"] == workers and result["epochs"] == 2
        assert result["optimizers"] == ["SGD(lr=0.1, momentum=0.9)"] and result["parameters"] == 27
        assert result["software"].startswith("Python 3.") and metadata.version("torch") in result["software"]
        assert result["device"] == "CPU"
        losses_by_size[workers] = read_losses(tmp_path / str(workers))
    assert losses_by_size[1] == pytest.approx(losses_by_size[2], rel=1e-5)
    rows = datasets.blobs(20, seed=3)
    models = [load_model(str(tmp_path / str(n) / f"model{n}")) for n in (1, 2)]
    one, two = (model.output(rows) for model in models)
    assert [mixed.dataset for mixed in models[1].artifact.mix] == ([other] if share else [])
    assert one.numpy() == pytest.approx(two.numpy(), rel=1e-4, abs=1e-5)


def test_every_worker_writes_its_events_and_rank_0_a_checkpoint_and_files_of_tensorboard(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PROGRESS_SECONDS", 0.01)
    job = spec(tmp_path, trackers=["tensorboard"])
    run(spark, job)
    progress = worker_progress.read_latest(job.task_key)
    assert progress and progress.at <= time.time(), "the driver wrote the progress of its workers"
    events = event_log.read(str(tmp_path / "run"))
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {"driver", "worker 0", "worker 1"}
    spans = {e["name"] for e in events if e["ph"] == "X"}
    assert {"rendezvous", "data wait", "forward", "backward", "optimizer", "checkpoint"} <= spans
    assert {"communication", "wait for communication"} <= spans
    assert (tmp_path / "run/checkpoints/train/step-00000026-group-1/checkpoint.json").exists()
    assert len(list((tmp_path / "run/tensorboard/train").glob("events.out.tfevents.*"))) == 1


@pytest.mark.full
def test_the_result_has_the_uris_of_formats_and_epoch_models(spark: Any, tmp_path: Path) -> None:
    result = run(spark, spec(tmp_path, formats=("pt2",), epoch_models=True, strategy="fsdp"))
    assert result["formats"] == {"pt2": f"{tmp_path}/model2/{result['weights_sha256'][:16]}/model.pt2"}
    assert Path(result["formats"]["pt2"]).is_file()
    epochs = [load_model(model["uri"]).artifact for model in result["epoch_models"]]
    assert [epoch.weights_sha256 for epoch in epochs] == [model["weights_sha256"] for model in result["epoch_models"]]
    assert [epoch.epochs for epoch in epochs] == [1, 2]
    assert epochs[result["best_epoch"] - 1].weights_sha256 == result["weights_sha256"]


@pytest.mark.parametrize("rank", [0, 1])
def test_the_worker_that_failed_is_named_and_not_its_peer(spark: Any, tmp_path: Path, rank: int) -> None:
    job = spec(tmp_path, "crashing", recipe_params={"rank": rank, "how": "raise"})
    with pytest.raises(TrainyardError) as error:
        run(spark, job)
    assert f"rank {rank} of 2 on" in str(error.value)
    assert "RuntimeError: the model failed" in str(error.value)
    assert "recipes.py" in str(error.value), "the traceback has the user's line"


@pytest.mark.faults
@pytest.mark.parametrize("strategy", ["fsdp", "horovod"])
def test_a_worker_that_fails_ends_the_others_in_other_strategies(spark: Any, tmp_path: Path, strategy: str) -> None:
    job = spec(tmp_path, "crashing", recipe_params={"rank": 1, "how": "raise"}, strategy=strategy)
    with pytest.raises(TrainyardError, match=r"rank 1 of 2 on .*RuntimeError: the model failed"):
        run(spark, job)


def test_a_worker_without_a_library_ends_those_that_wait_for_it(spark: Any, tmp_path: Path) -> None:
    """It fails before the rendezvous, where the others would wait for the timeout of a barrier."""
    job = spec(tmp_path)
    text, manifests_ = job.to_json(), [read_current(job.dataset).to_json()]

    def work(task: Any, start: int, driver: DriverAddress, cores: int) -> Outcome:
        if task.partitionId() == 1:
            sys.modules["trainyard.trainer.loop.fit"] = None  # type: ignore[assignment]
        return group_worker.run(task, text, manifests_, "application", start, driver, cores)

    events = EventLog(job.task_key.directory, job.task_key.task, "driver")
    with pytest.raises(TrainyardError, match=r"rank 1 of 2 on .*: (ImportError|ModuleNotFoundError)"):
        supervisor.supervise(spark.sparkContext, work, events, 2, 2, 0)


def test_a_recipe_that_exits_is_reported_as_the_failure_of_its_worker(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"rank \d of 2 on .* failed: SystemExit: 3"):
        run(spark, spec(tmp_path, "exiting"))


def test_progress_is_written_again_after_an_outage_of_the_storage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervisor, "PROGRESS_SECONDS", 0.001)
    outcomes: list[Exception | None] = [None, OSError("gone"), TrainyardError("no answer"), None]
    written = threading.Event()

    def report(*_: object) -> None:
        if outcomes and (error := outcomes.pop(0)):
            raise error
        if not outcomes:
            written.set()

    with supervisor._ProgressReports(report) as reports, reports.of(HeartbeatMonitor()):
        assert written.wait(60)
    assert capsys.readouterr().out == "the progress of the workers cannot be written now: OSError: gone\n"


def test_no_restart_waits_for_progress_that_is_being_written_and_the_end_of_a_training_only_for_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "PROGRESS_SECONDS", 0.01)
    writing, released = threading.Event(), threading.Event()

    def report(*_: object) -> None:
        writing.set()
        released.wait(60)

    with supervisor._ProgressReports(report) as reports:
        with reports.of(HeartbeatMonitor()):
            assert writing.wait(60)
        with reports.of(HeartbeatMonitor()):
            assert reports._thread.is_alive(), "the report of the first group is still being written"
        monkeypatch.setattr(supervisor, "LAST_PROGRESS_SECONDS", 0.01)
    released.set()


def test_a_storage_that_does_not_answer_while_a_group_restarts_is_no_progress(spark: Any, tmp_path: Path) -> None:
    counts = iter([5])

    def count_saved_updates() -> int:
        for count in counts:
            return count
        raise UnavailableError("cannot read hdfs://nn/checkpoints, for 120 s: safe mode")

    def work(task: Any, start: int, driver: DriverAddress, cores: int) -> Outcome:
        ended: Any = "lost" if start == 0 else "done"
        return Outcome(task.partitionId(), "here", 1.0, ended, result={}, error=None if start else "ECC error")

    events = EventLog(str(tmp_path), "train", "driver")
    assert supervisor.supervise(spark.sparkContext, work, events, 1, 1, 1, count_saved_updates) == {"restarts": 1}


def test_of_two_failures_the_first_is_reported(spark: Any, tmp_path: Path) -> None:
    def work(task: Any, start: int, driver: DriverAddress, cores: int) -> Outcome:
        rank = task.partitionId()
        task.allGather("")
        with HeartbeatSender(driver, rank, "here", CurrentPhase()) as sender:
            sender.report_failure(Outcome(rank, "here", 10.0 - rank, "failed", error=f"failure {rank}"))
        task.barrier()
        raise RuntimeError("reported before")

    events = EventLog(str(tmp_path), "train", "driver")
    with pytest.raises(TrainyardError, match="rank 1 of 2 on here failed: failure 1"):
        supervisor.supervise(spark.sparkContext, work, events, 2, 2, 0)


def test_a_worker_that_lost_its_storage_restarts_the_group(spark: Any, tmp_path: Path) -> None:
    def work(task: Any, start: int, driver: DriverAddress, cores: int) -> Outcome:
        rank = task.partitionId()
        with HeartbeatSender(driver, rank, "here", CurrentPhase()) as sender:
            if rank == 1 and start == 0:
                try:
                    raise UnavailableError("cannot read hdfs://nn/shard, for 120 s: no route to host")
                except UnavailableError as error:
                    outcome = build_failure(rank, error, sender.clock)
                sender.report_failure(outcome)
                raise TrainyardError(outcome.error)
            task.barrier()
        return Outcome(rank, "here", time.time(), result={})

    events = EventLog(str(tmp_path), "train", "driver")
    assert supervisor.supervise(spark.sparkContext, work, events, 2, 2, 1) == {"restarts": 1}
    events.flush()
    (restart,) = [e for e in event_log.read(str(tmp_path)) if e["name"] == "restart"]
    assert "cannot read hdfs://nn/shard" in restart["args"]["reason"]


def test_a_killed_worker_ends_the_group_with_one_clear_error(spark: Any, tmp_path: Path) -> None:
    job = spec(tmp_path, "crashing", recipe_params={"rank": 1, "how": "kill"}, max_restarts=0)
    with pytest.raises(TrainyardError, match=r"rank 1 of 2 ended without an error: its process was killed"):
        run(spark, job)
    assert run(spark, spec(tmp_path / "again"))["epochs"] == 2, "the application can start another group"


def faulty_spec(directory: Path, fault: str = "", **fields: Any) -> TrainSpec:
    """Return a job with a fault, and with a checkpoint every three updates; 26 of them are 2 epochs."""
    directory.mkdir(exist_ok=True)
    if fault:
        (directory / "fault").write_text(fault)
    options = TrainOptions(epochs=fields.pop("epochs", 2), batch_size=40, checkpoint_steps=3)
    return spec(directory, "faulty", recipe_params={"fault": f"{directory}/fault"}, **{"options": options} | fields)


def count_starts(directory: Path) -> int:
    return len((directory / "pids").read_text().split()) // 2


def read_resumptions(directory: Path) -> set[int]:
    """Return the updates after which groups resumed; there are 13 an epoch."""
    resumptions = [e["args"] for e in event_log.read(str(directory / "run")) if e["name"] == "resume"]
    return {13 * (at["epoch"] - 1) + at["step"] for at in resumptions}


NEWEST_BEFORE_17 = ({16}, {13})
"""The last checkpoint before update 17, or the one before if the last one has not been committed yet."""


def test_a_group_that_lost_a_worker_restarts_from_its_last_checkpoint(spark: Any, tmp_path: Path) -> None:
    result = run(spark, faulty_spec(tmp_path / "interrupted", "1 17 kill"))
    assert (result["restarts"], result["epochs"], count_starts(tmp_path / "interrupted")) == (1, 2, 2)
    run(spark, faulty_spec(tmp_path / "uninterrupted"))
    assert read_losses(tmp_path / "interrupted") == pytest.approx(read_losses(tmp_path / "uninterrupted"), rel=1e-6)
    events = event_log.read(str(tmp_path / "interrupted" / "run"))
    (restart,) = [e for e in events if e["name"] == "restart"]
    assert "rank 1 of 2 ended without an error" in restart["args"]["reason"]
    assert read_resumptions(tmp_path / "interrupted") in NEWEST_BEFORE_17
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {"driver", "worker 0", "worker 1", "worker 0, start 2", "worker 1, start 2"}


def test_a_loop_of_the_users_own_restarts_where_it_was(spark: Any, tmp_path: Path) -> None:
    losses = []
    for name in ("undisturbed", "killed"):
        folder = tmp_path / name
        params = {"fault": str(folder / "fault"), "losses": str(folder / "losses")}
        job = spec(folder, workers=2, options=TrainOptions(epochs=2, batch_size=40, checkpoint_steps=3))
        job = TrainSpec(**dict(job) | {"recipe": None, "loop": "tests.trainer.run.loops:plain", "loop_params": params})
        if name == "killed":
            (folder / "fault").write_text("0 9 1 9")
        result = run(spark, job)
        assert (result["restarts"], result["epochs"]) == (int(name == "killed"), 2)
        lines = dict(line.rsplit(" ", 1) for line in (folder / "losses").read_text().splitlines())
        losses.append({step: float(loss) for step, loss in lines.items()})
        assert load_model(result["uri"]).predict(datasets.blobs(5))["class_"].shape == (5,)
    assert len(losses[0]) == 2 * 13
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)


@pytest.mark.faults
def test_a_group_that_hangs_is_restarted_and_the_late_worker_is_named(spark: Any, tmp_path: Path) -> None:
    """A minute is longer than any phase that makes progress."""
    result = run(spark, faulty_spec(tmp_path, "1 17 hang", hang_minutes=1))
    assert (result["restarts"], result["epochs"], count_starts(tmp_path)) == (1, 2, 2)
    (restart,) = [e for e in event_log.read(str(tmp_path / "run")) if e["name"] == "restart"]
    reason = restart["args"]["reason"]
    assert "the worker group hangs in epoch 2, step 4: rank 1 on " in reason
    assert "in 'forward' for 6" in reason and reason.endswith("the others wait in 'backward'")
    assert read_resumptions(tmp_path) in NEWEST_BEFORE_17
    pids = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
    assert sum(psutil.pid_exists(pid) for pid in pids) <= 2, "those of the second group"


@pytest.mark.full
def test_a_group_with_a_worker_that_is_silent_is_restarted_and_names_it(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "DEFAULT_SILENCE_SECONDS", 4.0)
    monkeypatch.setattr(heartbeats, "IMPORTING_SILENCE_SECONDS", 8.0)  # it may stop before its second heartbeat
    result = run(spark, faulty_spec(tmp_path, "1 17 stop"))
    assert (result["restarts"], result["epochs"], count_starts(tmp_path)) == (1, 2, 2)
    (restart,) = [e for e in event_log.read(str(tmp_path / "run")) if e["name"] == "restart"]
    assert re.search("^no heartbeat arrived for 4 s from rank 1 on [^,]+, in '[^']+': ", restart["args"]["reason"])
    assert read_resumptions(tmp_path) in NEWEST_BEFORE_17
    pids = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
    assert sum(psutil.pid_exists(pid) for pid in pids) <= 2, "those of the second group"


@pytest.mark.full
def test_spans_are_in_the_time_of_the_drivers_clock(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 3600 * 10**9
    monkeypatch.setattr(heartbeats, "now", lambda: time.time_ns() + ahead)
    began = time.time()
    run(spark, spec(tmp_path))
    events = event_log.read(str(tmp_path / "run"))
    steps = [e["ts"] / 1e6 for e in events if e["name"] == "forward"]
    assert all(began + 3600 <= at <= time.time() + 3600 for at in steps)
    clocks = [e["args"] for e in events if e["name"] == "clock"]
    assert [abs(clock["behind_ms"] - ahead / 1e6) <= clock["error_ms"] for clock in clocks] == [True, True]


@pytest.mark.full
def test_no_process_of_a_killed_group_remains(spark: Any, tmp_path: Path) -> None:
    run(spark, faulty_spec(tmp_path, "0 5 kill"))
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(set(pids)) in (3, 4), "Spark may reuse the surviving process"
    assert sum(psutil.pid_exists(pid) for pid in set(pids)) <= 2


@pytest.mark.faults
def test_without_progress_a_group_restarts_a_limited_number_of_times(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match="rank 1 of 2 ended without an error"):
        run(spark, faulty_spec(tmp_path, "1 2 kill always", max_restarts=1))
    assert count_starts(tmp_path) == 2


@pytest.mark.faults
def test_progress_resets_the_number_of_restarts(spark: Any, tmp_path: Path) -> None:
    result = run(spark, faulty_spec(tmp_path, "1 7 kill always", max_restarts=1, epochs=1))
    assert result["restarts"] == count_starts(tmp_path) - 1 >= 2
    assert result["epochs"] == 1


def test_exceptions_in_user_code_do_not_trigger_a_restart(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match="RuntimeError: the model failed"):
        run(spark, faulty_spec(tmp_path, "1 9 raise"))
    assert count_starts(tmp_path) == 1


@pytest.mark.full
def test_another_attempt_resumes_where_the_one_before_ended(spark: Any, tmp_path: Path) -> None:
    job = faulty_spec(tmp_path, "1 17 kill", max_restarts=0)
    with pytest.raises(TrainyardError):
        run(spark, job)
    assert run(spark, job)["restarts"] == 0
    assert read_resumptions(tmp_path) in NEWEST_BEFORE_17


def run_to_success(spark: Any, job: TrainSpec, application: str, clock_ahead: float) -> None:
    """Run a job, and write its record as a driver does whose clock is ahead of rank 0's."""
    began = time.time()
    output = run(spark, job)
    RunRecord(
        task_key=job.task_key, job="train", application=application, started_at=began + clock_ahead,
        seconds=time.time() - began, status="succeeded", output=output,
    ).save()  # fmt: skip


CLOCKS_AHEAD = pytest.mark.parametrize("clock_ahead", [-3600.0, 3600.0])


@pytest.mark.faults
@CLOCKS_AHEAD
def test_a_succeeded_task_that_is_cleared_starts_from_the_beginning(
    spark: Any, tmp_path: Path, clock_ahead: float
) -> None:
    job = faulty_spec(tmp_path)
    run_to_success(spark, job, "a", clock_ahead)
    run(spark, job)
    assert not read_resumptions(tmp_path)
    root = group_worker.checkpoint_root(job.task_key)
    assert {each.group for each in list_checkpoints(root)} == {2}, "a group of the first run would be an older one"


@pytest.mark.faults
@CLOCKS_AHEAD
def test_a_cleared_task_that_was_killed_resumes_from_its_own_checkpoint(
    spark: Any, tmp_path: Path, clock_ahead: float
) -> None:
    job = faulty_spec(tmp_path, max_restarts=0)
    for application in ("a", "b"):
        run_to_success(spark, job, application, clock_ahead)
    (tmp_path / "fault").write_text("1 17 kill")
    with pytest.raises(TrainyardError):
        run(spark, job)
    assert not read_resumptions(tmp_path)
    run(spark, job)
    assert read_resumptions(tmp_path) in NEWEST_BEFORE_17


@pytest.mark.faults
def test_a_cleared_task_starts_from_the_beginning_although_an_attempt_failed_before_it_trained(
    spark: Any, tmp_path: Path
) -> None:
    job = faulty_spec(tmp_path)
    run_to_success(spark, job, "a", clock_ahead=0.0)
    record = run_record.read_latest(job.task_key)
    assert record
    run_record.mark_used(job.task_key, record)
    key = job.task_key.model_copy(update={"first_try": 2, "try_number": 3})
    failed = {"task_key": key, "application": "b", "status": "failed", "error": "Spark did not start"}
    record.model_copy(update=failed).save()
    run(spark, job.model_copy(update={"task_key": key}))
    assert not read_resumptions(tmp_path)


def test_an_elastic_group_uses_the_slots_that_exist(spark: Any, tmp_path: Path) -> None:
    """Request one to three workers with two slots; losses do not depend on the number of workers."""
    result = run(spark, faulty_spec(tmp_path / "elastic", workers=(1, 3)))
    assert result["workers"] == 2
    run(spark, faulty_spec(tmp_path / "one", workers=1))
    assert read_losses(tmp_path / "elastic") == pytest.approx(read_losses(tmp_path / "one"), rel=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("strategy", ["threshold", "fsdp", "horovod"])
def test_a_strategy_trains_in_a_worker_group(spark: Any, tmp_path: Path, strategy: str) -> None:
    result = run(spark, spec(tmp_path, strategy=strategy))
    assert result["epochs"] == 2 and result["bytes_sent"] > 0
    assert load_model(str(tmp_path / "model2")).output(datasets.blobs(5)).shape == (5, 3)


def test_more_workers_than_slots_are_refused_at_once(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"workers=3 needs as many slots.*offers 2.*workers=2.*local\[3\]"):
        run(spark, spec(tmp_path, workers=3))


def test_a_global_batch_smaller_than_the_group_is_refused(spark: Any, tmp_path: Path) -> None:
    job = spec(tmp_path, options=TrainOptions(batch_size=1))
    with pytest.raises(
        TrainyardError, match="batch_size=1 is the global batch, and smaller than the number of workers, 2"
    ):
        run(spark, job)


def test_the_error_for_a_missing_dataset_names_it(spark: Any, tmp_path: Path) -> None:
    job = spec(tmp_path).model_copy(update={"dataset": str(tmp_path / "nowhere")})
    with pytest.raises(TrainyardError, match=r"nowhere is not a dataset: it has no manifest\.json"):
        run(spark, job)


def test_events_are_json_that_perfetto_reads(spark: Any, tmp_path: Path) -> None:
    run(spark, spec(tmp_path, workers=1))
    lines = (tmp_path / "run/events/train/worker 0.jsonl").read_text().splitlines()
    for line in lines:
        event = json.loads(line)
        assert {"ph", "name", "ts", "pid", "tid"} <= event.keys()
        assert isinstance(event["pid"], int) and isinstance(event["ts"], int)
