"""The life of a task: what fails for good, what another attempt may repair, and who ends the application."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.triggers.base import BaseTrigger, TriggerEvent
from fsspec.implementations.local import LocalFileSystem
from hdfs import HdfsError

from tests.plugins.results import output
from trainyard.clusters.local import LocalCluster
from trainyard.clusters.yarn.cluster import YarnCluster
from trainyard.compat import (
    AirflowException,
    AirflowFailException,
    AirflowTaskTimeout,
    TaskDeferralError,
    TaskDeferralTimeout,
    TaskDeferred,
)
from trainyard.errors import TrainyardError, UnavailableError
from trainyard.files import filesystems, storage
from trainyard.hooks.trainyard import Settings, TrainyardHook
from trainyard.jobs import lineage
from trainyard.jobs import operator as operators
from trainyard.jobs.operator import JobOperator
from trainyard.jobs.task_instance import task_key_of
from trainyard.operators import ExportOperator, Memory, Placement, PredictOperator
from trainyard.planning.paths import attempt_uri
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.source import Source
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.triggers import marked_tasks
from trainyard.triggers.application import ApplicationTrigger

FAILED = ("__fail__", {"error": "Trigger failure"})
TIMED_OUT = ("__fail__", {"error": "Trigger timeout"})


@dataclass
class TaskInstance:
    """What an operator uses of Airflow's task instance."""

    task: JobOperator
    try_number: int = 1
    max_tries: int = 1
    dag_id: str = "toy"
    run_id: str = "r1"
    task_id: str = "export"
    map_index: int = -1
    state: str = "running"

    pushed: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def get_task_states(self, **_: Any) -> dict[str, dict[str, str]]:
        return {self.run_id: {self.task_id: self.state}}


@dataclass
class RecordingBackend:
    """A deferred backend that does nothing but `step`, and records its calls."""

    step: Callable[[], Any] = lambda: None
    calls: list[str] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)

    def run(self, log: Any) -> Any:
        self.calls.append("run")
        return self.step()

    def collect(self, event: Any, log: Any) -> Any:
        self.calls.append("collect")
        return self.step()

    def kill(self) -> None:
        self.calls.append("kill")

    def kill_all(self) -> None:
        self.calls.append("kill_all")


@pytest.fixture
def operator(dag_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobOperator:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    monkeypatch.setattr(TrainyardHook, "get_conn", lambda self: Settings(f"file://{tmp_path}/s", shared=True))
    source = tmp_path / "source.json"
    source.write_text('{"x": 1.5}\n')
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    return ExportOperator(
        task_id="export", dag=dag, prepare="toy.prepare:rows", source=str(source), format="json", dataset="dataset",
        retries=1,
    )  # fmt: skip


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> RecordingBackend:
    backend = RecordingBackend()
    for kind in (LocalCluster, YarnCluster):
        for name in ("create_backend", "resume_backend"):
            monkeypatch.setattr(kind, name, lambda *_: backend)
    return backend


def raise_unavailable(*_: Any) -> Any:
    raise UnavailableError("there is no valid ticket")


def raise_refusal(*_: Any) -> Any:
    raise TrainyardError("there is no queue 'etl'")


def context(operator: JobOperator, **fields: Any) -> Any:
    return {"ti": TaskInstance(operator, **fields), "outlet_events": {}}


@pytest.fixture
def on_yarn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect the operator to YARN, where an earlier attempt may have left an application."""
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))


def kill_while_planning(operator: JobOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_job = operators.plan_job

    def plan_and_be_killed(*arguments: Any) -> Any:
        operator.on_kill()
        return plan_job(*arguments)

    monkeypatch.setattr(operators, "plan_job", plan_and_be_killed)


def test_a_task_that_exceeds_its_execution_timeout_ends_its_backend(
    operator: JobOperator, backend: RecordingBackend
) -> None:
    """Airflow calls `on_kill` after the exception has left the operator."""

    def time_out() -> None:
        raise AirflowTaskTimeout

    backend.step = time_out
    with pytest.raises(AirflowTaskTimeout):
        operator.execute(context(operator))
    operator.on_kill()
    assert backend.calls == ["run", "kill"]


def test_a_signal_after_the_end_of_an_attempt_leaves_the_application_to_the_next(
    operator: JobOperator, backend: RecordingBackend
) -> None:
    """Airflow sends one where listeners take longer than [core] task_success_overtime."""
    backend.step = raise_unavailable
    with pytest.raises(AirflowException):
        operator.execute(context(operator))
    operator.on_kill()
    assert backend.calls == ["run"]


@pytest.mark.parametrize("resume", [False, True], ids=["execute", "resume"])
def test_an_attempt_that_is_killed_before_its_submission_may_be_followed_by_another(
    operator: JobOperator, backend: RecordingBackend, resume: bool
) -> None:
    """Airflow forwards the SIGTERM of a worker that shuts down; nobody has marked the task."""
    operator.on_kill()
    with pytest.raises(AirflowException, match="killed before its application was submitted") as error:
        operator.resume(context(operator), {}) if resume else operator.execute(context(operator))
    assert not isinstance(error.value, AirflowFailException)
    assert backend.calls == []


@pytest.mark.parametrize(
    ("attempt", "state", "calls"),
    [
        (1, "running", []),
        (2, "running", ["kill_all"]),
        (2, "failed", []),
        (2, "up_for_retry", []),
    ],
)
def test_the_last_attempt_ends_the_application_of_an_earlier_one_when_its_worker_shuts_down(
    operator: JobOperator, backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch, on_yarn: None, attempt: int,
    state: str, calls: list[str],
) -> None:  # fmt: skip
    """In any other state of the task another attempt may run by then."""
    kill_while_planning(operator, monkeypatch)
    with pytest.raises(AirflowException):
        operator.execute(context(operator, try_number=attempt, state=state))
    assert backend.calls == calls


@pytest.mark.parametrize(("attempt", "calls"), [(1, []), (2, ["kill_all"])])
def test_the_last_attempt_that_takes_too_long_to_plan_ends_the_application_of_an_earlier_one(
    operator: JobOperator, backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch, on_yarn: None, attempt: int,
    calls: list[str],
) -> None:  # fmt: skip
    def time_out(*_: Any) -> Any:
        raise AirflowTaskTimeout

    monkeypatch.setattr(operators, "plan_job", time_out)
    with pytest.raises(AirflowTaskTimeout):
        operator.execute(context(operator, try_number=attempt))
    assert backend.calls == calls


def test_an_attempt_that_defers_ends_nothing(operator: JobOperator, backend: RecordingBackend) -> None:
    backend.step = lambda: ApplicationTrigger("application_1", "tag")
    with pytest.raises(TaskDeferred):
        operator.execute(context(operator, try_number=2))
    assert backend.calls == ["run"]


@pytest.mark.parametrize(("cancel_on_kill", "announced"), [(True, "application_1"), (False, None)])
def test_a_task_announces_the_application_that_ends_with_it_before_it_waits(
    operator: JobOperator, backend: RecordingBackend, cancel_on_kill: bool, announced: str | None
) -> None:
    operator.cancel_on_kill = cancel_on_kill
    backend.step = lambda: ApplicationTrigger("application_1", "tag", cancel_on_kill=cancel_on_kill)
    run = context(operator)
    with pytest.raises(TaskDeferred):
        operator.execute(run)
    assert run["ti"].pushed.get(marked_tasks.KEY) == announced


def test_a_task_that_is_killed_ends_its_backend(operator: JobOperator, backend: RecordingBackend) -> None:
    def be_killed() -> None:
        operator.on_kill()
        raise_unavailable()

    backend.step = be_killed
    with pytest.raises(AirflowException):
        operator.execute(context(operator))
    assert backend.calls == ["run", "kill"]


@pytest.mark.parametrize("resume", [False, True], ids=["execute", "resume"])
def test_a_ticket_that_has_expired_fails_the_attempt_and_not_the_task(
    operator: JobOperator, backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch, resume: bool
) -> None:
    monkeypatch.setattr(TrainyardHook, "get_conn", raise_unavailable)
    with pytest.raises(AirflowException, match="no valid ticket") as error:
        operator.resume(context(operator), {}) if resume else operator.execute(context(operator))
    assert not isinstance(error.value, AirflowFailException)


@pytest.mark.parametrize("error", [OSError, RuntimeError, HdfsError])
def test_a_storage_that_does_not_answer_fails_the_attempt_and_not_the_task(
    operator: JobOperator, backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """A prediction reads the model, to ship its recipe."""

    class Away(LocalFileSystem):  # type: ignore[misc]
        def exists(self, path: str, **_: Any) -> bool:
            raise error("no NameNode answers")

    monkeypatch.setattr(filesystems, "_REGISTERED", {"hdfs://nn": Away()})
    predict = PredictOperator(
        task_id="predict", dag=operator.dag, model="hdfs://nn/model", source="/in", keys=["id"], output="out"
    )
    message = f"'predict': the application cannot be planned now: {error.__name__}: no NameNode"
    with pytest.raises(AirflowException, match=message) as failed:
        predict.execute(context(predict))
    assert not isinstance(failed.value, AirflowFailException)


def test_a_spec_that_cannot_be_written_fails_the_attempt_with_its_uri_and_one_line(
    operator: JobOperator, backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exceed(*_: Any) -> None:
        raise RuntimeError(r'RPCError("DSQuotaExceededException", "The quota is exceeded\n\tat org.apache.Quota")')

    monkeypatch.setattr(storage, "replace", exceed)
    with pytest.raises(AirflowException, match=r"/1\.json cannot be written: .*quota is exceeded$") as failed:
        operator.execute(context(operator))
    assert not isinstance(failed.value, AirflowFailException)


def test_an_attempt_does_not_change_the_spec_that_the_application_of_an_earlier_one_reads(
    operator: JobOperator, backend: RecordingBackend, tmp_path: Path
) -> None:
    """That application may wait for resources, and start later."""
    backend.step = raise_refusal
    for try_number, seed in ((1, 5), (2, 6)):
        operator.seed = seed  # type: ignore[attr-defined]
        with pytest.raises(AirflowException):
            operator.execute(context(operator, try_number=try_number))
    [run] = (tmp_path / "s" / "runs" / "toy").iterdir()
    read = [ExportSpec.load(str(run / name)).seed for name in ("attempts/export/1.json", "attempts/export/2.json")]
    assert (read, ExportSpec.load(str(run / "specs/export.json")).seed) == ([5, 6], 6)


def test_a_plan_that_is_refused_fails_the_task(
    operator: JobOperator, backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "plan_job", raise_refusal)
    with pytest.raises(AirflowFailException, match="no queue 'etl'"):
        operator.execute(context(operator))


def test_a_result_is_collected_without_a_plan(
    operator: JobOperator, backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "plan_job", raise_refusal)
    ti = context(operator)
    key = task_key_of(ti["ti"], TrainyardHook().get_conn().storage)
    record = RunRecord(
        task_key=key, job="export", application="a", started_at=1.0, seconds=1.0, status="succeeded",
        output=output("export"),
    )  # fmt: skip
    backend.step = lambda: record
    operator.outlets.clear()
    assert operator.resume(ti, {"application": "a"}) == output("export")


def test_openlineage_gets_what_the_application_has_read_although_the_operator_changed_since(
    operator: JobOperator, backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later attempt collects the result; a model's name stands for another version by then."""
    monkeypatch.setattr(lineage, "is_enabled", lambda: True)
    ti = context(operator, try_number=2)
    root = TrainyardHook().get_conn().storage
    key = task_key_of(context(operator)["ti"], root)
    ran = operator.build_spec(key, root).model_copy(update={"source": Source(format="json", path="/data/before")})
    storage.replace(attempt_uri(key), ran.to_json().encode())
    record = RunRecord(
        task_key=key, job="export", application="a", started_at=1.0, seconds=1.0, status="succeeded",
        output=output("export"),
    )  # fmt: skip
    backend.step = lambda: record
    monkeypatch.setattr(lineage, "_describe_written", lambda uri, result: lineage.Item(uri))
    operator.outlets.clear()
    operator.resume(ti, {"application": "a"})
    (read,) = operator.get_openlineage_facets_on_complete(ti["ti"]).inputs
    assert read.name == "/data/before"


@pytest.mark.parametrize(
    ("end", "error", "attempt", "calls"),
    [
        (FAILED, TaskDeferralError, 1, []),
        (FAILED, TaskDeferralError, 2, ["kill_all"]),
        (TIMED_OUT, TaskDeferralTimeout, 1, ["kill_all"]),
        (TIMED_OUT, TaskDeferralTimeout, 2, ["kill_all"]),
    ],
)
def test_when_no_attempt_follows_the_application_of_a_trigger_that_failed_is_ended(
    operator: JobOperator, backend: RecordingBackend, on_yarn: None, end: Any, error: type, attempt: int,
    calls: list[str],
) -> None:  # fmt: skip
    with pytest.raises(error):
        operator.resume_execution(*end, context(operator, try_number=attempt))
    assert backend.calls == calls


@pytest.mark.parametrize(("attempt", "calls"), [(1, []), (2, ["kill_all"])])
def test_an_application_that_is_left_to_the_next_attempt_outlives_a_timeout_but_the_last_one(
    operator: JobOperator, backend: RecordingBackend, on_yarn: None, attempt: int, calls: list[str]
) -> None:
    operator.cancel_on_kill = False
    with pytest.raises(TaskDeferralTimeout):
        operator.resume_execution(*TIMED_OUT, context(operator, try_number=attempt))
    assert backend.calls == calls


def test_a_connection_that_is_broken_does_not_make_a_failed_trigger_final(
    operator: JobOperator, backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch, on_yarn: None
) -> None:
    monkeypatch.setattr(TrainyardHook, "get_conn", raise_refusal)
    for attempt in (1, 2):
        with pytest.raises(TaskDeferralError):
            operator.resume_execution(*FAILED, context(operator, try_number=attempt))


@pytest.mark.parametrize(("attempt", "calls"), [(1, ["collect"]), (2, ["collect", "kill_all"])])
def test_when_no_attempt_follows_an_application_without_an_answer_is_ended(
    operator: JobOperator, backend: RecordingBackend, attempt: int, calls: list[str]
) -> None:
    backend.step = raise_unavailable
    with pytest.raises(AirflowException):
        operator.resume_execution("resume", {"event": {}}, context(operator, try_number=attempt))
    assert backend.calls == calls


def test_an_application_that_cannot_be_ended_does_not_hide_the_failure(
    operator: JobOperator, backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.step = raise_refusal
    monkeypatch.setattr(backend, "kill_all", raise_unavailable)
    with pytest.raises(AirflowException, match="no queue 'etl'"):
        operator.resume_execution("resume", {"event": {}}, context(operator, try_number=2))


def test_a_last_attempt_that_is_refused_ends_what_an_earlier_one_submitted(
    operator: JobOperator, backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch, on_yarn: None
) -> None:
    monkeypatch.setattr(operators, "plan_job", raise_refusal)
    with pytest.raises(AirflowFailException):
        operator.execute(context(operator, try_number=2))
    assert backend.calls == ["kill_all"]


def test_an_attempt_that_is_killed_does_not_end_the_application_of_the_next_one(
    operator: JobOperator, backend: RecordingBackend
) -> None:
    def be_killed() -> Any:
        operator.on_kill()
        raise TrainyardError("killed while it was submitted")

    backend.step = be_killed
    with pytest.raises(AirflowException):
        operator.execute(context(operator, try_number=2, state="restarting"))
    assert backend.calls == ["run", "kill"]


def test_airflow_renders_the_templates_of_all_common_options(operator: JobOperator) -> None:
    operator.memory = Memory(heap="{{ params.heap }}", native="1g")
    operator.placement = Placement(queue="{{ params.queue }}", node_label="{{ params.label }}")
    operator.env_vars = {"QUEUE": "{{ params.queue }}"}
    operator.executors = ("{{ params.gpus }}", 4)  # type: ignore[attr-defined]
    operator.render_template_fields({"params": {"heap": "3g", "queue": "train", "label": "gpu", "gpus": 2}})
    assert operator.memory == Memory(heap="3g", native="1g")
    assert operator.placement == Placement(queue="train", node_label="gpu")
    assert operator.env_vars == {"QUEUE": "train"}
    assert operator.executors == ("2", 4)  # type: ignore[attr-defined]


class ShortTrigger(BaseTrigger):  # type: ignore[misc]
    """Fires at once; a task is killed meanwhile if it is given."""

    def __init__(self, killed: JobOperator | None = None) -> None:
        super().__init__()
        self.killed = killed

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "ShortTrigger", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        if self.killed:
            self.killed.on_kill()
        yield TriggerEvent({"application": "application_1_0001"})


def test_a_task_that_is_not_deferrable_waits_in_its_worker(
    operator: JobOperator, backend: RecordingBackend, capfd: pytest.CaptureFixture[str]
) -> None:
    key = TaskKey(dag_id="toy", run_id="r1", task_id="export", directory="/runs/r1")
    record = RunRecord(
        task_key=key, job="export", application="a", started_at=1.0, seconds=1.0, status="failed", error="no column y",
        traceback="Traceback: line 3",
    )  # fmt: skip
    outcomes = iter([ShortTrigger(), record])
    backend.step = lambda: next(outcomes)
    operator.deferrable = False
    with pytest.raises(AirflowException, match=r"^no column y$"):
        operator.execute(context(operator))
    assert capfd.readouterr().out.count("Traceback: line 3") == 1
    assert backend.calls == ["run", "collect"]


@pytest.mark.parametrize(("cancel_on_kill", "calls"), [(True, ["run", "kill", "collect"]), (False, ["run", "collect"])])
def test_a_task_that_is_killed_while_it_waits_may_leave_its_application_to_the_next_attempt(
    operator: JobOperator, backend: RecordingBackend, cancel_on_kill: bool, calls: list[str]
) -> None:
    outcomes = iter([ShortTrigger(killed=operator)])

    def step() -> Any:
        if outcome := next(outcomes, None):
            return outcome
        raise TrainyardError("it was killed")

    backend.step = step
    operator.deferrable, operator.cancel_on_kill = False, cancel_on_kill
    with pytest.raises(AirflowException):
        operator.execute(context(operator, try_number=1, state="running"))
    assert backend.calls == calls


@pytest.mark.parametrize("default", [True, False])
def test_airflow_s_setting_is_the_default_of_deferrable(
    dag_file: Path, monkeypatch: pytest.MonkeyPatch, default: bool
) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", str(default))
    export = ExportOperator(task_id="t", prepare="toy.prepare:rows", source="/in", format="json", dataset="toy")
    assert export.deferrable is default


@pytest.mark.parametrize(
    ("fixed", "mapped", "message"),
    [
        ({"dataset": "d"}, {"seed": 1}, r"dataset='d', and the last one .* write dataset='d/\{\{ ti.map_index \}\}'"),
        ({"dataset": "d"}, {"partition": "a"}, None),
        ({"seed": 1}, {"dataset": "d"}, None),
    ],
)
def test_tasks_of_a_mapped_one_with_the_same_output_are_refused(
    dag_file: Path, fixed: dict[str, Any], mapped: dict[str, Any], message: str | None
) -> None:
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    partial = ExportOperator.partial(task_id="e", dag=dag, prepare="toy.prepare:rows", source="a.parquet", **fixed)
    operator = partial.expand(**{name: [value] for name, value in mapped.items()}).unmap(mapped)
    key = TaskKey(dag_id="toy", run_id="r1", task_id="e", map_index=0, directory="file:///s")
    with pytest.raises(TrainyardError, match=message) if message else nullcontext():
        operator.build_spec(key, "file:///s")


def test_an_output_of_which_a_template_renders_to_none_is_refused(operator: ExportOperator) -> None:
    templated = ExportOperator(
        task_id="other", dag=operator.dag, prepare="toy.prepare:rows", source="a.parquet", dataset="n/{{ none }}"
    )  # fmt: skip
    templated.dataset = "n/None"
    key = TaskKey(dag_id="toy", run_id="r1", task_id="other", directory="file:///s")
    with pytest.raises(TrainyardError, match=r"^ExportOperator 'other': dataset='n/None' has a part without a value"):
        templated.build_spec(key, "file:///s")
