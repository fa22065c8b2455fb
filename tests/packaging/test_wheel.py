"""The wheel, installed in an environment of its own without a checkout on the path."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from pathlib import Path

import pytest

from stack.local import fresh

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.ranks,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
]

ROOT = Path(__file__).parents[2]

USER_FILES = {
    "__init__.py": "",
    "export.py": """
        from pyspark.sql import functions as F

        def rows(spark, source):
            point = F.array(F.col("x").cast("float"), F.col("y").cast("float"))
            return source.select(point.alias("point"), F.col("label").cast("bigint"))
    """,
    "recipe.py": """
        from torch import nn
        from trainyard.trainer import Recipe

        def linear() -> Recipe:
            return Recipe(
                model=nn.Linear(2, 2), features="point", label="label", classes=2, loss=nn.CrossEntropyLoss()
            )
    """,
    "dag.py": """
        from airflow.sdk import DAG
        from trainyard.operators import EvaluateOperator, ExportOperator, TrainOperator

        with DAG("installed", schedule=None):
            export = ExportOperator(
                task_id="export", prepare="etl.export:rows", source="points.json", format="json",
                dataset="points/dataset",
            )
            train = TrainOperator(
                task_id="train", recipe="etl.recipe:linear", dataset=export.output, model="points/model", epochs=2,
                workers=2,
            )
            EvaluateOperator(task_id="evaluate", model=train.output, dataset=export.output, metrics=["accuracy"])
    """,
}
"""A pipeline in a user's package that is named as a folder of ours."""


class Installation:
    """A virtual environment with the wheel, used from a folder that is unrelated to the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.storage = folder / "storage"
        self.environment = folder / "env"
        self.wheel = fresh.build_wheel(folder)
        fresh.create_environment(self.environment)
        self.install(str(self.wheel), "apache-airflow")

    def install(self, *requirements: str) -> None:
        fresh.install(self.environment, *requirements, "-c", str(ROOT / "requirements.txt"))
        fresh.link_bytecode(self.environment)

    def run(self, *command: str) -> str:
        variables = {
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "AIRFLOW_CONN_TRAINYARD_DEFAULT": json.dumps(
                {"conn_type": "trainyard", "extra": {"storage": self.storage.as_uri()}}
            ),
        }
        program = str(self.environment / "bin" / command[0])
        return fresh.run([program, *command[1:]], self.folder, variables)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return Installation(tmp_path_factory.mktemp("wheel"))


@pytest.mark.full
def test_beside_airflow_alone_operators_import_and_airflow_lists_the_provider(installed: Installation) -> None:
    program = """
        import sys
        from importlib.metadata import version

        from trainyard.hooks import TrainyardHook
        from trainyard.operators import ExportOperator, Memory, Placement, TrainOperator
        from trainyard.sensors import CapacitySensor

        assert not {"torch", "pyspark", "pyarrow", "numpy"} & sys.modules.keys()
        assert version("pyspark") == version("pyspark-client")
    """
    installed.run("python", "-c", textwrap.dedent(program))
    assert "airflow-trainyard" in installed.run("airflow", "providers", "list", "--output", "plain")
    assert "trainyard.links.ReportLink" in installed.run("airflow", "providers", "links", "--output", "plain")
    assert "dataset" in installed.run("trainyard", "--help")


@pytest.mark.full
def test_a_pipeline_of_a_package_named_etl_runs_with_the_public_interface(installed: Installation) -> None:
    installed.install(f"{installed.wheel}[cluster]", "apache-airflow")
    installed.run(
        "python", "-c",
        "from trainyard.trainer import Allreduce, Dataset, FitResult, Recipe, TrainedModel, export, fit, load_model\n"
        "from trainyard.etl import TrainyardEstimator, TrainyardModel, evaluate, features, predict, register\n"
        "import trainyard.trainer; assert 'site-packages' in trainyard.trainer.__file__",
    )  # fmt: skip
    package = installed.folder / "dags" / "etl"
    package.mkdir(parents=True)
    for name, text in USER_FILES.items():
        (package / name).write_text(textwrap.dedent(text))
    rows = [{"x": n % 7, "y": n % 5, "label": int(n % 7 > n % 5)} for n in range(400)]
    installed.storage.mkdir()
    (installed.storage / "points.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    installed.run("airflow", "db", "migrate")
    installed.run("airflow", "dags", "test", "installed")
    shown = installed.run("trainyard", "run", "show", "installed")
    assert shown.count("succeeded") == 3, shown
    assert "split train" in installed.run("trainyard", "dataset", "show", str(installed.storage / "points" / "dataset"))
    assert "verified" in installed.run("trainyard", "dataset", "verify", str(installed.storage / "points" / "dataset"))
    assert "accuracy" in shown and "point" in installed.run(
        "trainyard", "model", "show", str(installed.storage / "points/model")
    )


def test_the_quick_start_of_the_readme_runs_in_an_empty_folder(tmp_path: Path) -> None:
    """With the packages of this environment and a migrated database; `make fresh` starts without both."""
    environment, work = tmp_path / "env", tmp_path / "work"
    (work / "airflow").mkdir(parents=True)
    shutil.copy(Path(os.environ["AIRFLOW_HOME"]) / "airflow.db", work / "airflow")
    fresh.create_environment(environment)
    fresh.install_beside(environment, fresh.build_wheel(tmp_path))
    options = {"SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"]}
    assert fresh.run_quick_start(work, environment, options).count("succeeded") == 3
    fresh.check_accuracy(work)
