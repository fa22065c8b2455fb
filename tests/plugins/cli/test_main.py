"""What the command `trainyard` prints when a storage cannot be used, and how it reaches HDFS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.plugins.name_nodes import serve_silence
from tests.plugins.resource_managers import Answer, serve
from tests.trainer import datasets
from trainyard import compat, hooks
from trainyard.cli.main import main
from trainyard.files import filesystems, hdfs
from trainyard.hooks import trainyard


@pytest.fixture(autouse=True)
def unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystems, "_REGISTERED", {})
    monkeypatch.setattr(trainyard, "_ROUTES", {})


def test_an_error_of_the_storage_is_printed_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets.write(tmp_path / "dataset", {"train": datasets.blobs(100)})
    manifest = tmp_path / "dataset" / "manifest.json"
    manifest.unlink()
    manifest.mkdir()
    assert main(["dataset", "show", str(tmp_path / "dataset")]) == 1
    assert (
        capsys.readouterr().err
        == f"this command failed with IsADirectoryError: [Errno 21] Is a directory: '{manifest}'\n"
    )


def test_a_storage_that_does_not_answer_is_an_error_after_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person who forgot the VPN waited for a minute for each call of HDFS."""
    with serve_silence(monkeypatch) as (uri, _):
        monkeypatch.setattr(hdfs, "CALL_SECONDS", 60)
        monkeypatch.setattr(filesystems, "ANSWER_SECONDS", 0.1)
        assert main(["dataset", "show", uri]) == 1
    assert capsys.readouterr().err == (
        f"{uri.removesuffix('/data')} does not answer within 0 s; check the host in the URI, whether this machine "
        "reaches its network (a VPN may be needed), and whether the storage runs.\n"
    )


def test_an_error_of_a_dag_is_printed_once_and_without_a_traceback_where_the_message_says_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = 'Traceback (most recent call last):\n  File "dag.py", line 4, in <module>\n'
    ours = f"{trace}trainyard.errors.TrainyardError: TrainOperator 'train': epochs='x': write a whole number.\n"
    errors = {"a.py": ours, "b.py": f"{trace}ImportError: no flowers"}
    bag = SimpleNamespace(dags={}, import_errors=errors, dag_folder="dags")
    monkeypatch.setattr(compat, "import_dag_bag", lambda: lambda dag_folder: bag)
    assert main(["plan", "digits"]) == 1
    assert capsys.readouterr().err == (
        "there is no DAG 'digits' in dags; it has [].\n"
        f"a.py: TrainOperator 'train': epochs='x': write a whole number.\nb.py: {errors['b.py']}\n"
    )


def connect_by_http(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    route = {"conn_type": "webhdfs", "host": host, "port": int(port)}
    ours = {"conn_type": "trainyard", "extra": {"storage": "hdfs://nn1:8020/trainyard", "webhdfs": "by_http"}}
    for conn_id, fields in (("BY_HTTP", route), ("OURS", ours)):
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id}", json.dumps(fields))


@pytest.mark.parametrize("command", [["dataset", "show"], ["model", "show"], ["run", "show"]])
def test_a_uri_of_hdfs_is_read_as_the_connection_says(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = {"exception": "FileNotFoundException", "message": "File does not exist"}
    with serve(lambda *_: Answer({"RemoteException": missing}, 404)) as server:
        connect_by_http(monkeypatch, server.url)
        assert main([*command, "hdfs://nn1:8020/trainyard/runs/d/r", "--conn-id", "ours"]) == 1
        assert server.requests and "/trainyard/runs/d/r" in server.requests[0][1]
    assert "hdfs://nn1:8020/trainyard/runs/d/r" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["toy/dataset", "other/dataset"])
def test_a_dataset_may_be_named_as_an_operator_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    datasets.write(tmp_path / "toy" / "dataset", {"train": datasets.blobs(100)})
    ours = {"conn_type": "trainyard", "extra": {"storage": tmp_path.as_uri()}}
    monkeypatch.setenv("AIRFLOW_CONN_OURS", json.dumps(ours))
    status = main(["dataset", "versions", name, "--conn-id", "ours"])
    output = capsys.readouterr()
    if name == "toy/dataset":
        assert status == 0 and "100" in output.out
    else:
        assert status == 1 and f"{tmp_path.as_uri()}/other/dataset is not a dataset" in output.err


def test_a_path_that_exists_is_not_the_name_of_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    datasets.write(tmp_path / "dataset", {"train": datasets.blobs(100)})
    monkeypatch.chdir(tmp_path)
    for command, name in (("versions", "dataset"), ("show", "dataset@1")):
        assert main(["dataset", command, name]) == 0
        assert "100" in capsys.readouterr().out


def test_the_error_for_the_missing_package_of_webhdfs_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connect_by_http(monkeypatch, "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "hdfs", None)
    monkeypatch.delitem(sys.modules, "trainyard.hooks.webhdfs", raising=False)
    monkeypatch.delattr(hooks, "webhdfs", raising=False)
    assert main(["run", "show", "hdfs://nn1:8020/trainyard/runs/d/r", "--conn-id", "ours"]) == 1
    assert capsys.readouterr().err == (
        "connection 'ours': webhdfs='by_http' needs the package hdfs. Install airflow-trainyard[webhdfs].\n"
    )


@pytest.mark.slow
def test_output_for_programs_has_no_lines_of_the_log_of_airflow(tmp_path: Path) -> None:
    (tmp_path / "dag.py").write_text("from airflow.sdk import DAG\n\ndag = DAG('empty')\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO"}
    command = [sys.executable, "-m", "trainyard", "plan", "empty", "--dags-folder", str(tmp_path), "-o", "json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (json.loads(done.stdout), done.returncode) == ([], 0), done.stderr


def test_commands_import_airflow_after_the_level_of_its_log_is_set() -> None:
    """Else lines of its log are in the output, which programs read."""
    program = "import sys; from trainyard.cli import main; main.parser(); print('airflow' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
