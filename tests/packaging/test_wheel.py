"""The wheel, installed in an environment of its own without a checkout on the path."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
import zipfile
from pathlib import Path

import pytest

from stack.local import fresh

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(1800)]

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
    """A virtual environment, used from a folder that is unrelated to the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.storage, self.environment = folder, folder / "storage", folder / "env"
        self.storage.mkdir()
        fresh.create_environment(self.environment)

    def run(self, *command: str) -> str:
        variables = {
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"],
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "AIRFLOW_CONN_TRAINYARD_DEFAULT": json.dumps(
                {"conn_type": "trainyard", "extra": {"storage": self.storage.as_uri()}}
            ),
        }
        program = str(self.environment / "bin" / command[0])
        return fresh.run([program, *command[1:]], self.folder, variables)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fresh.build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def installed(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


@pytest.mark.full
def test_beside_airflow_alone_operators_import_and_airflow_lists_the_provider(
    installed: Installation, wheel: Path
) -> None:
    fresh.install(installed.environment, str(wheel), "apache-airflow", "-c", str(ROOT / "requirements.txt"))
    fresh.link_bytecode(installed.environment)
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
@pytest.mark.ranks
@pytest.mark.spark
def test_a_pipeline_of_a_package_named_etl_runs_with_the_public_interface(installed: Installation, wheel: Path) -> None:
    """With the packages of this environment and a migrated database; `make fresh` begins without both."""
    fresh.install_beside(installed.environment, wheel)
    (installed.folder / "airflow").mkdir()
    shutil.copy(Path(os.environ["AIRFLOW_HOME"]) / "airflow.db", installed.folder / "airflow")
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
    (installed.storage / "points.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    installed.run("airflow", "dags", "test", "installed")
    shown = installed.run("trainyard", "run", "show", "installed")
    assert shown.count("succeeded") == 3, shown
    assert "split train" in installed.run("trainyard", "dataset", "show", str(installed.storage / "points" / "dataset"))
    assert "verified" in installed.run("trainyard", "dataset", "verify", str(installed.storage / "points" / "dataset"))
    assert "accuracy" in shown and "point" in installed.run(
        "trainyard", "model", "show", str(installed.storage / "points/model")
    )


def test_the_wheel_plans_the_quick_start_of_the_readme(installed: Installation, wheel: Path) -> None:
    """With the packages of this environment; `make fresh` installs those of the day, and runs the pipeline."""
    fresh.install_beside(installed.environment, wheel)
    fresh.write_quick_start(installed.folder)
    planned = json.loads(installed.run("trainyard", "plan", "flowers", "-o", "json"))
    assert [task["task_id"] for task in planned] == ["export", "train", "evaluate"]
    archives = {archive for task in planned for archive in task["plan"]["py_files"]}
    names = {name for archive in archives for name in zipfile.ZipFile(archive).namelist()}
    assert names >= {"flowers/recipe.py", "trainyard/trainer/loop/fit.py", "trainyard/etl/jobs/evaluate.py"}
