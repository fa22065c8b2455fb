"""An application on a local master: all of its processes end, and its record is the outcome."""

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.sdk import DAG

from tests.plugins.backends.threads import run_in_thread
from trainyard.backends import processes
from trainyard.backends.local import LocalBackend
from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.hooks.trainyard import Settings
from trainyard.operators import ExportOperator
from trainyard.planning.plan import Plan
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.usage import resource_usage

pytestmark = pytest.mark.spark

STUCK = """
    import os, time

    def rows(spark, source):
        def stay(value):
            with open(os.environ["RUNNING"], "w") as running:
                running.write("a task runs")
            os.fork()
            time.sleep(3600)
        return spark.sparkContext.parallelize([1], 1).map(stay).toDF()
"""
GONE = """
    import os, signal

    def rows(spark, source):
        print("about to go", flush=True)
        open(os.environ["HEARD"]).read()
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def plan(dag_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plan]:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    source = tmp_path / "source.json"
    source.write_text('{"x": 1.5}\n' * 20)
    dag = DAG("toy", schedule=None)
    dag.fileloc = str(dag_file)
    operator = ExportOperator(
        task_id="export", dag=dag, prepare="toy.prepare:rows", source=str(source), format="json", dataset="dataset"
    )
    task_key = TaskKey(dag_id="toy", run_id="r1", task_id="export", directory=f"file://{tmp_path}/s/runs/toy/r1")

    def build(prepare: str) -> Plan:
        (dag_file.parent / "prepare.py").write_text(textwrap.dedent(prepare))
        plan = operator.plan(task_key, Settings(storage=f"file://{tmp_path}/s"))
        storage.replace(plan.attempt_uri, operator.SPEC.model_validate(plan.job.spec).to_json().encode())
        return plan

    return build


def test_kill_ends_the_jvm_its_python_workers_and_their_children(plan, tmp_path, monkeypatch) -> None:
    os.mkfifo(tmp_path / "running")
    monkeypatch.setenv("RUNNING", str(tmp_path / "running"))
    plan = plan(STUCK)
    backend = LocalBackend(plan)
    running, errors = run_in_thread(backend)
    assert (tmp_path / "running").read_text() == "a task runs"
    assert len(processes.find_tagged(plan.tag)) >= 4
    backend.kill()
    running.join()
    assert processes.find_tagged(plan.tag) == []
    assert errors == ["ExportOperator 'export' was killed; its application and all of its processes were ended."]


@pytest.mark.full
def test_a_driver_that_is_killed_is_reported_with_its_last_output(plan, tmp_path, monkeypatch) -> None:
    os.mkfifo(tmp_path / "heard")
    monkeypatch.setenv("HEARD", str(tmp_path / "heard"))

    def log(line: str) -> None:
        if line == "about to go":
            (tmp_path / "heard").write_text("go")

    with pytest.raises(TrainyardError) as raised:
        LocalBackend(plan(GONE)).run(log)
    [usage] = resource_usage.read_run(f"file://{tmp_path}/s/runs/toy/r1")
    assert (usage.application, usage.busy_seconds, usage.core_seconds) == ("try-1", 0.0, 2 * usage.seconds)
    message = str(raised.value)
    assert message.startswith("ExportOperator 'export': the application was ended by signal 9 before its driver")
    assert "about to go" in message


@pytest.mark.full
def test_an_exception_of_user_code_is_the_error_of_the_record(plan) -> None:
    record = LocalBackend(plan("def rows(spark, source): raise ValueError('no column y')")).run(lambda line: None)
    assert record.status == "failed"
    assert "no column y" in str(record.error)


@pytest.mark.full
def test_archived_code_wins_over_code_in_the_working_directory(plan, tmp_path, monkeypatch) -> None:
    decoy = tmp_path / "elsewhere" / "etl"
    decoy.mkdir(parents=True)
    (decoy / "__init__.py").write_text("raise RuntimeError('the wrong etl')")
    monkeypatch.chdir(decoy.parent)
    record = LocalBackend(plan("def rows(spark, source): return spark.range(500)")).run(lambda line: None)
    assert (record.status, record.error) == ("succeeded", None)
    [usage] = resource_usage.read_run(record.task_key.directory)
    assert usage.application == record.application
    assert 0 < usage.busy_seconds < record.seconds < usage.seconds


@pytest.mark.full
def test_an_application_maps_the_classes_that_the_one_before_it_wrote(plan, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    prepare = f"""
        from pathlib import Path

        def rows(spark, source):
            jvm = Path("/proc/self/status").read_text().partition("PPid:")[2].split()[0]
            Path("{tmp_path}/maps").write_text(Path(f"/proc/{{jvm}}/maps").read_text())
            return spark.range(50)
    """
    for _ in range(2):
        assert LocalBackend(plan(prepare)).run(lambda line: None).status == "succeeded"
    [archive] = (tmp_path / "cache/trainyard").iterdir()
    assert str(archive) in (tmp_path / "maps").read_text()
