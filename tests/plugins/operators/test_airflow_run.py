"""Through a real `airflow dags test`: results, asset events, the link, failures and Ctrl-C."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.plugins.conftest import MARKER
from tests.plugins.terminals import Terminal

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

DAG = """
from airflow.sdk import DAG
from trainyard.operators import ExportOperator

common = dict(source="{{ params.source }}", format="json", rows_per_batch=8)

with DAG("NAME", schedule=None, params={"source": "SOURCE"}):
    ExportOperator(task_id="good", prepare="toy.prepare:rows", dataset="NAME/good", **common)
    ExportOperator(task_id="bad", prepare="toy.prepare:broken", dataset="NAME/bad", **common)
"""
PREPARE = """
    import os, time

    def rows(spark, source):
        return source

    def broken(spark, source):
        raise ValueError("the price of tea is unknown")

    def stuck(spark, source):
        with open(os.environ["RUNNING"], "w") as running:
            running.write("it runs")
        time.sleep(3600)
"""


@pytest.fixture
def dag(dag_file: Path, tmp_path: Path) -> Callable[[str, str], None]:
    source = tmp_path / "source.json"
    source.write_text("".join(f'{{"x": {n}.5, "y": {n}}}\n' for n in range(40)))
    (dag_file.parent / "prepare.py").write_text(textwrap.dedent(PREPARE))

    def write(name: str, text: str = DAG) -> None:
        dag_file.write_text(text.replace("NAME", name).replace("SOURCE", str(source)))

    return write


def modes(folder: Path) -> set[tuple[bool, int]]:
    """Of all that lies below a folder: whether it is a folder too, and who may do what."""
    return {(path.is_dir(), path.stat().st_mode & 0o777) for path in folder.rglob("*")}


@pytest.mark.full
def test_a_run_writes_results_asset_events_links_and_the_error(
    dag: Callable[..., None], tmp_path: Path, python: Callable[..., Any], airflow_database: Path
) -> None:
    dag("outcome")
    process = python("-m", "airflow", "dags", "test", "outcome")
    assert process.returncode != 0
    assert "AirflowException: ValueError: the price of tea is unknown\n" in process.stdout + process.stderr
    assert " INFO SparkContext" not in process.stdout
    assert "XCom not found" not in process.stdout + process.stderr

    with sqlite3.connect(airflow_database) as database:
        pushed = database.execute("select task_id, key, value from xcom where dag_id = 'outcome'").fetchall()
        (extra,) = database.execute(
            "select e.extra from asset_event e join asset a on a.id = e.asset_id where a.name = 'outcome/good'"
        ).fetchone()
        other = database.execute(
            "select count(*) from asset_event e join asset a on a.id = e.asset_id where a.name = 'outcome/bad'"
        ).fetchone()
    xcoms = {(task, key): json.loads(str(value)) for task, key, value in pushed}  # SQLite makes numbers of numbers
    result = xcoms["good", "return_value"]
    assert result["rows"] == xcoms["good", "rows"] == 40
    assert result["uri"].endswith("/s/outcome/good")
    assert ("bad", "return_value") not in xcoms
    page = xcoms["good", "trainyard_report"]
    assert "/trainyard/report?conn_id=trainyard_default&dag_id=outcome&run_id=manual__" in page
    event = json.loads(extra)
    assert (event["rows"], event["content_hash"]) == (40, result["content_hash"])
    assert other == (0,)

    (failure,) = (tmp_path / "s/runs/outcome").glob("*/failures/*.json")
    assert failure.name == "bad.json" and "the price of tea is unknown" in json.loads(failure.read_text())["error"]

    assert MARKER not in process.stdout + process.stderr
    # In a process of its own: one that closes a file of SQLite's gives up its locks on the database.
    command = ["grep", "--recursive", "--files-with-matches", "--fixed-strings"]
    places = [str(tmp_path), str(airflow_database.parent)]
    with_secret, with_text = (
        subprocess.run([*command, text, *places], capture_output=True, text=True) for text in (MARKER, "tea")
    )
    assert with_secret.stdout == "", "files with the secret of a connection"
    assert "report.html" in with_text.stdout and "airflow.db" in with_text.stdout, "all is looked at"


@pytest.mark.full
def test_an_unchanged_export_submits_no_application(
    dag: Callable[..., None], tmp_path: Path, python: Callable[..., Any], airflow_database: Path
) -> None:
    dag("again", DAG[: DAG.index('    ExportOperator(task_id="bad"')])
    first, second = (python("-m", "airflow", "dags", "test", "again", umask=0o022) for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0), second.stdout
    assert "Exporting to" in first.stdout and "there is no dataset yet" in first.stdout
    assert "sources, code and options are those of version 1" in second.stdout
    assert modes(tmp_path / "s") == {(True, 0o755), (False, 0o644)}
    with (tmp_path / "source.json").open("a") as source:
        source.write('{"x": 0.5, "y": 1}\n')
    third = python("-m", "airflow", "dags", "test", "again")
    assert "the source files changed since version 1" in third.stdout
    with sqlite3.connect(airflow_database) as database:
        (values,) = zip(*database.execute(
            "select value from xcom where dag_id = 'again' and key = 'return_value' order by timestamp"
        ), strict=True)  # fmt: skip
    results = [json.loads(value) for value in values]
    assert [(r["version"], r["rows"], r.get("reused", False)) for r in results] == [
        (1, 40, False), (1, 40, True), (2, 41, False),
    ]  # fmt: skip


EPOCHS_DAG = """
from airflow.sdk import DAG
from trainyard.operators import EvaluateOperator, ExportOperator, ScriptOperator, TrainOperator

with DAG("NAME", schedule=None):
    export = ExportOperator(
        task_id="export", prepare="toy.prepare:rows", source="SOURCE", format="json", dataset="NAME/dataset",
        splits={"train": 1.0},
    )
    train = TrainOperator(
        task_id="train", recipe="toy.recipe:network", dataset=export.output, epochs=2, batch_size=8, epoch_models=True,
    )
    EvaluateOperator(
        task_id="evaluate", model=train.output, baselines=train.output["epoch_models"], split="train", metrics=["mae"],
    )
    ScriptOperator(
        task_id="script", script="toy.script", arguments=["--word", train.output["workers"]], workers=2
    )
"""
RECIPE = """
from torch import nn
from trainyard.trainer import Recipe

class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Linear(1, 1)

    def forward(self, x):
        return self.slope(x[:, None])[:, 0]

def network() -> Recipe:
    return Recipe(model=Line(), features="x", label="y", loss=nn.MSELoss())
"""


WAITING = """
import os

class Loss(nn.MSELoss):
    batches = 0

    def forward(self, output, label):
        self.batches += 1
        if self.batches == 7:
            print("loss of the seventh batch", flush=True)
            open(os.environ["SEEN"]).read()
        return super().forward(output, label)
"""
SCRIPT = """
import argparse
import beside
import torch, torch.distributed as dist

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--word")
    word = parser.parse_args().word
    dist.init_process_group("gloo")
    sum = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(sum)
    print(f"rank {dist.get_rank()} received {word} and found {sum.item():g} {beside.UNIT}")
"""


@pytest.mark.full
def test_a_training_in_a_terminal_with_models_of_its_epochs_and_a_script(
    dag: Callable[[str, str], None], dag_file: Path, tmp_path: Path, environment: dict[str, str], airflow_database: Path
) -> None:
    """The recipe imports a package beside that of the DAG."""
    (dag_file.parent / "recipe.py").write_text(
        "from common.lines import slope\n"
        + RECIPE.replace("nn.Linear", "slope").replace("nn.MSELoss()", "Loss()")
        + WAITING
    )
    (dag_file.parents[1] / "common").mkdir()
    (dag_file.parents[1] / "common" / "lines.py").write_text("from torch import nn\n\nslope = nn.Linear\n")
    (dag_file.parent / "script.py").write_text(SCRIPT)
    (dag_file.parent / "beside.py").write_text('UNIT = "apples"')
    dag("watched", EPOCHS_DAG)
    os.mkfifo(tmp_path / "seen")
    command = ["sh", "-c", 'umask 077; exec "$@"', "sh", sys.executable, "-m", "airflow", "dags", "test", "watched"]
    terminal = Terminal(command, environment | {"SEEN": str(tmp_path / "seen"), "TERM": "xterm"}, columns=400)
    terminal.read_until(lambda lines: bool(lines) and "━ epoch 2/2 step 1/5: loss " in lines[-1])
    (tmp_path / "seen").write_text("the bar was seen")
    log = terminal.end()

    about_loss = [line for line in log if "loss " in line]
    assert not [line for line in about_loss if not line.startswith("20") or "━" in line], "the bar is below the log"
    for text in ("epoch 1/2: loss ", "loss of the seventh batch", "epoch 2/2: loss "):
        assert len([line for line in about_loss if text in line]) == 1, about_loss

    assert modes(tmp_path / "s") == {(True, 0o700), (False, 0o600)}
    (record,) = (tmp_path / "s/runs/watched").glob("*/records/evaluate.json")
    others = json.loads(record.read_text())["output"]["baselines"]
    assert [other["uri"].rpartition("/train/")[2] for other in others] == ["epochs/001", "epochs/002"]
    trained = json.loads(record.with_name("train.json").read_text())["output"]["epoch_models"]
    (spec,) = (tmp_path / "s/runs/watched").glob("*/specs/evaluate*.json")
    baselines = json.loads(spec.read_text())["baselines"]
    assert baselines == [f"{model['uri']}@{model['weights_sha256'][:16]}" for model in trained]

    for rank in (0, 1):
        assert [line for line in log if f"rank {rank} received 1 and found 3 apples" in line], log
    with sqlite3.connect(airflow_database) as database:
        query = "select value from xcom where dag_id = 'watched' and task_id = 'script' and key = 'return_value'"
        (result,) = database.execute(query).fetchone()
    assert json.loads(result) == {"workers": 2, "restarts": 0}


@pytest.mark.full
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_terminating_the_airflow_process_ends_the_application(
    dag: Callable[..., None],
    environment: dict[str, str],
    tmp_path: Path,
    airflow_database: Path,
    ending: signal.Signals,
) -> None:
    dag(f"ended_{ending}", DAG.replace(":rows", ":stuck").partition('    ExportOperator(task_id="bad"')[0])
    os.mkfifo(tmp_path / "running")
    environment |= {"RUNNING": str(tmp_path / "running")}
    command = [sys.executable, "-m", "airflow", "dags", "test", f"ended_{ending}"]
    airflow = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        # Tests that are started in the background ignore SIGINT, and what they start would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert (tmp_path / "running").read_text() == "it runs"
    descendants = psutil.Process(airflow.pid).children(recursive=True)
    assert {"java", "python"} <= {process.name().rstrip("0123456789.") for process in descendants}
    airflow.send_signal(ending)
    assert airflow.wait() != 0
    _, alive = psutil.wait_procs(descendants, timeout=60)  # init may take a moment to reap one that has ended
    assert alive == []
