"""Users' own scripts, which do not use Trainyard, on a worker group."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainyard.errors import TrainyardError
from trainyard.schemas import model_artifact
from trainyard.schemas.runs import events as event_log
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.specs.script import ScriptSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.trainer.group import script
from trainyard.trainer.strategies import horovod

SCRIPTS = "tests.trainer.scripts"
OF_THE_AGENT = ("TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE", "TORCH_NCCL_ASYNC_ERROR_HANDLING")
"""Variables by which torchrun's own process watches its workers."""


def run(spark: Any, directory: Path, name: str, *arguments: str, **fields: Any) -> dict[str, Any]:
    task_key = TaskKey(dag_id="d", run_id="r", task_id="train", directory=str(directory / "run"))
    spec = ScriptSpec(task_key=task_key, script=f"{SCRIPTS}.{name}", arguments=arguments, **{"workers": 2} | fields)
    events = EventLog(task_key.directory, task_key.task, "driver")
    try:
        return script.run(spark, spec, events).to_xcom()
    finally:
        events.flush()


def read_results(directory: Path) -> list[dict[str, Any]]:
    return [json.loads((directory / f"{rank}.json").read_text()) for rank in (0, 1)]


def read_starts(directory: Path) -> list[str]:
    return (directory / "starts").read_text().split()


@pytest.mark.spark
@pytest.mark.parametrize("name", ["horovod_digits", "ddp_digits"])
def test_a_script_trains_one_model_on_all_workers(spark: Any, tmp_path: Path, name: str) -> None:
    result = run(spark, tmp_path, name, "--epochs", "6", "--results", str(tmp_path))
    assert result == {"workers": 2, "restarts": 0}
    first, second = read_results(tmp_path)
    assert first["weights"] == second["weights"]
    assert first["accuracy"] == second["accuracy"] > 0.85
    assert [(r["size"], r["local"]) for r in (first, second)] == [(2, 0), (2, 1)]


@pytest.mark.full
@pytest.mark.spark
def test_one_application_runs_scripts_one_after_the_other(spark: Any, tmp_path: Path) -> None:
    for turn in range(2):
        for name in ("horovod_digits", "ddp_digits"):
            folder = tmp_path / f"{name}{turn}"
            folder.mkdir()
            run(spark, folder, name, "--epochs", "1", "--results", str(folder))
            assert len({r["weights"] for r in read_results(folder)}) == 1


@pytest.mark.full
@pytest.mark.spark
def test_a_single_worker_runs_a_script(spark: Any, tmp_path: Path) -> None:
    run(spark, tmp_path, "horovod_digits", "--epochs", "1", "--results", str(tmp_path), workers=1)
    assert json.loads((tmp_path / "0.json").read_text())["size"] == 1


@pytest.mark.spark
@pytest.mark.parametrize("strategy", ["allreduce", "horovod"])
def test_a_script_that_calls_fit_uses_all_workers(spark: Any, tmp_path: Path, batches: str, strategy: str) -> None:
    model = str(tmp_path / "model")
    run(spark, tmp_path, "fitting", batches, model, strategy)
    assert model_artifact.read_current(model).metrics["bytes_per_step"] > 0


def find_leftovers(_: Any) -> tuple[list[str], list[str], bool]:
    import torch.distributed as dist

    variables = [name for name in os.environ if name.startswith(("HOROVOD_", "MASTER_", "TORCHELASTIC_", "LEFT_"))]
    return variables, [path for path in [*sys.argv, *sys.path] if "scripts" in path], dist.is_initialized()


@pytest.mark.spark
def test_nothing_of_a_script_remains_in_the_processes_that_spark_reuses(spark: Any, tmp_path: Path) -> None:
    run(spark, tmp_path, "obedient", str(tmp_path), "no rank", "does anything")
    leftovers = spark.sparkContext.parallelize(range(2), 2).map(find_leftovers).collect()
    assert leftovers == [([], [], False)] * 2


@pytest.mark.spark
def test_a_script_is_a_span_in_the_events(spark: Any, tmp_path: Path) -> None:
    run(spark, tmp_path, "obedient", str(tmp_path), "no rank", "does anything")
    events = event_log.read(str(tmp_path / "run"))
    assert {e["args"]["name"] for e in events if e["name"] == "thread_name"} == {"driver", "worker 0", "worker 1"}
    assert [e["name"] for e in events if e["ph"] == "X"].count("script") == 2


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("connected", [[], ["connected"]], ids=["before the workers connect", "after they connected"])
@pytest.mark.parametrize("rank", [0, 1])
def test_an_exception_in_a_script_ends_all_workers_and_is_reported_with_its_line(
    spark: Any, tmp_path: Path, rank: int, connected: list[str]
) -> None:
    with pytest.raises(TrainyardError) as error:
        run(spark, tmp_path, "obedient", str(tmp_path), str(rank), "raise", *connected, max_restarts=3)
    message = str(error.value)
    assert message.startswith(f"rank {rank} of 2 on ")
    assert "failed: RuntimeError: the data is bad\nsecond line\nTraceback" in message
    assert "obedient.py" in message and message.endswith("second line")
    assert read_starts(tmp_path) == ["0"], "no restart"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("3", "tests.trainer.scripts.obedient ended with exit status 3; its output is in the log"),
        ("no data in /x", "tests.trainer.scripts.obedient ended: no data in /x"),
    ],
)
def test_an_exit_status_is_a_failure(spark: Any, tmp_path: Path, how: str, message: str) -> None:
    with pytest.raises(TrainyardError, match=rf"^rank 1 of 2 on \S+ failed: {message}$"):
        run(spark, tmp_path, "obedient", str(tmp_path), "1", how)


@pytest.mark.spark
def test_an_exit_status_of_0_is_success(spark: Any, tmp_path: Path) -> None:
    assert run(spark, tmp_path, "obedient", str(tmp_path), "0", "0", workers=1) == {"workers": 1, "restarts": 0}


@pytest.mark.faults
@pytest.mark.spark
@pytest.mark.parametrize("connected", [[], ["connected"]], ids=["before the workers connect", "after they connected"])
def test_a_killed_worker_ends_the_others(spark: Any, tmp_path: Path, connected: list[str]) -> None:
    with pytest.raises(TrainyardError, match=r"rank 1 of 2 .*obedient ended without an error: .*killed by SIGKILL"):
        run(spark, tmp_path, "obedient", str(tmp_path), "1", "kill", *connected)
    assert read_starts(tmp_path) == ["0"]


@pytest.mark.spark
def test_the_other_scripts_may_save_when_one_fails(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"rank 1 of 2 .*exit status 4. The end of its output:\nthe disk is full$"):
        run(spark, tmp_path, "graceful", str(tmp_path))
    assert (tmp_path / "saved").exists()


@pytest.mark.spark
def test_a_script_that_lost_a_worker_restarts(spark: Any, tmp_path: Path) -> None:
    result = run(spark, tmp_path, "obedient", str(tmp_path), "1", "kill once", "connected", max_restarts=1)
    assert result == {"workers": 2, "restarts": 1}
    assert read_starts(tmp_path) == ["0", "1"]


@pytest.mark.spark
def test_the_error_for_a_missing_script_names_it(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"No module named tests\.trainer\.scripts\.nowhere"):
        run(spark, tmp_path, "nowhere")


def build_spec(**fields: Any) -> ScriptSpec:
    task_key = TaskKey(dag_id="d", run_id="r", task_id="train", directory="/run")
    return ScriptSpec(task_key=task_key, script=f"{SCRIPTS}.ddp_digits", **fields)


TWO_HOSTS = ("a", "a", "b", "a", "b")


def test_the_environment_for_torch_has_ranks_and_hosts() -> None:
    assert script.build_environment(build_spec(max_restarts=3), TWO_HOSTS, 4, "a:29500", cores=8, start=2) == {
        "OMP_NUM_THREADS": "8",
        "RANK": "4",
        "WORLD_SIZE": "5",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "29500",
        "ROLE_NAME": "default",
        "ROLE_RANK": "4",
        "ROLE_WORLD_SIZE": "5",
        "TORCHELASTIC_RUN_ID": "d/r/train",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


@pytest.mark.slow
def test_a_worker_has_the_variables_that_torchrun_sets(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import json, os; print(json.dumps(sorted(os.environ)))")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", str(program)]
    done = subprocess.run(command, env={"LC_CTYPE": "C.UTF-8"}, capture_output=True, text=True, check=True)
    from_torchrun = {*json.loads(done.stdout)} - {"LC_CTYPE", *OF_THE_AGENT}
    assert from_torchrun <= {*script.build_environment(build_spec(), ["a"], 0, "a:29500", cores=1)}


@pytest.mark.parametrize(
    ("rank", "local", "cross"),
    [(0, (0, 3), (0, 2)), (1, (1, 3), (0, 2)), (2, (0, 2), (1, 2)), (3, (2, 3), (0, 1)), (4, (1, 2), (1, 2))],
)
def test_the_environment_for_horovod_has_local_and_cross_ranks(
    rank: int, local: tuple[int, int], cross: tuple[int, int]
) -> None:
    variables = horovod.build_environment(TWO_HOSTS, rank, "10.0.0.1:4000")
    assert (variables["HOROVOD_HOSTNAME"], variables["HOROVOD_RANK"]) == (TWO_HOSTS[rank], str(rank))
    assert variables["HOROVOD_SIZE"] == "5"
    assert (variables["HOROVOD_LOCAL_RANK"], variables["HOROVOD_LOCAL_SIZE"]) == tuple(map(str, local))
    assert (variables["HOROVOD_CROSS_RANK"], variables["HOROVOD_CROSS_SIZE"]) == tuple(map(str, cross))
    assert (variables["HOROVOD_GLOO_RENDEZVOUS_ADDR"], variables["HOROVOD_GLOO_RENDEZVOUS_PORT"]) == (
        "10.0.0.1",
        "4000",
    )


@pytest.mark.spark
@pytest.mark.parametrize("workers", [1, 2])
def test_the_workers_on_a_local_master_share_its_slots_as_threads(spark: Any, tmp_path: Path, workers: int) -> None:
    run(spark, tmp_path, "threads", str(tmp_path), workers=workers)
    threads = spark.sparkContext.defaultParallelism // workers
    for rank in range(workers):
        assert json.loads((tmp_path / f"{rank}.json").read_text()) == {"omp": str(threads), "torch": threads}


@pytest.mark.spark
def test_scripts_meet_by_the_store_that_the_driver_serves_to_its_workers_alone(spark: Any, tmp_path: Path) -> None:
    """torch's own store, which the environment names, asks nobody who they are."""
    run(spark, tmp_path, "meet", str(tmp_path), workers=2)
    for rank in range(2):
        assert (tmp_path / f"{rank}.store").read_text() == f"trainyard.trainer.connections.store {rank} of 2"
