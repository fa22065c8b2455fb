"""An Airflow home of the tests' own, set before anything imports Airflow; DAGs written on the fly."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
_HOME = tempfile.TemporaryDirectory(prefix="trainyard-tests-", ignore_cleanup_errors=True)
os.environ["AIRFLOW_HOME"] = f"{_HOME.name}/airflow"
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = f"{_HOME.name}/dags"
os.environ["AIRFLOW__CORE__PLUGINS_FOLDER"] = str(ROOT / "plugins")
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE"] = "True"

import pytest  # noqa: E402

MARKER = "bZ7-marker-Q2x"
"""The secret in every connection of the tests: nothing of a run may repeat it."""
Run = Callable[..., "subprocess.CompletedProcess[str]"]

PREPARE = """
    def rows(spark, source):
        return source
"""
RECIPE = "network = None\n"


@pytest.fixture
def pipelines(tmp_path: Path) -> Path:
    """A DAGs folder with the package `toy`: `prepare.py` and `recipe.py`, and `dag.py` still to be written."""
    package = tmp_path / "dags" / "toy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "prepare.py").write_text(textwrap.dedent(PREPARE))
    (package / "recipe.py").write_text(RECIPE)
    return package.parent


@pytest.fixture
def environment(pipelines: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of an Airflow whose DAGs folder is `pipelines` and whose storage is `tmp_path`/s."""
    return os.environ | {
        "AIRFLOW__CORE__DAGS_FOLDER": str(pipelines),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(
            {"conn_type": "spark", "host": "local[2]", "password": MARKER, "extra": {"token": MARKER}}
        ),
        "AIRFLOW_CONN_TRAINYARD_DEFAULT": json.dumps(
            {
                "conn_type": "trainyard",
                "login": "me",
                "password": MARKER,
                "extra": {"storage": f"file://{tmp_path}/s"},
            }
        ),
        "PYTHONPATH": f"{ROOT / 'plugins'}:{pipelines}",
    }


@pytest.fixture
def python(environment: dict[str, str]) -> Run:
    """Runs Python to its end in a process of its own, in `environment`."""

    def run(*arguments: str, umask: int = -1) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False, umask=umask
        )

    return run


@pytest.fixture(scope="session")
def airflow_database() -> Path:
    """Airflow's own database, made on first use."""
    environment = os.environ | {"TRAINYARD_HOME": _HOME.name}
    subprocess.run(["bash", "-euc", ". stack/local/env.sh"], cwd=ROOT, env=environment, check=True, capture_output=True)
    return Path(os.environ["AIRFLOW_HOME"]) / "airflow.db"


@pytest.fixture
def dag_file(pipelines: Path) -> Path:
    return pipelines / "toy" / "dag.py"
