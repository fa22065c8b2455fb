"""The rows of the matrix: other versions of Python, Hadoop, Spark, torch, pandas and Airflow, and the tests of each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]

QUICK = ("-m", "not ranks and not spark and not airflow and not cluster and not browser and not slow")
CLUSTER = (
    "-k", "not share_its_gpus and not lost_a_worker", "tests/cluster/test_preflight.py",
    "tests/cluster/test_storage.py", "tests/cluster/test_pipeline.py",
)  # fmt: skip
SPARK = (
    "-m", "spark and not slow", "tests/etl/datasource", "tests/etl/evaluation",
    "tests/etl/jobs/exporting/test_export.py", "tests/etl/jobs/test_predict.py", "tests/cluster/test_pipeline.py",
)  # fmt: skip
# Horovod's wheel is built for one version of torch.
TORCH = (
    "-m", "not spark and not airflow and not cluster and not slow", "-k", "not horovod", "tests/trainer/checkpointing",
    "tests/trainer/data", "tests/trainer/formats", "tests/trainer/loop", "tests/trainer/measuring",
    "tests/trainer/model", "tests/trainer/strategies",
)  # fmt: skip
PANDAS = (
    "tests/etl/evaluation", "tests/etl/jobs/test_predict.py", "tests/etl/jobs/test_featurize.py",
    "tests/etl/datasource/test_interchange.py", "tests/trainer/formats",
)  # fmt: skip
AIRFLOW = ("tests/plugins", "tests/dags/test_examples.py", "tests/cluster/test_pipeline.py")
LOWEST = ("-m", "not ranks and not cluster and not slow", "tests/etl", "tests/plugins", "tests/trainer")
DELTA = ("tests/etl/jobs/delta.py",)
ICEBERG = ("tests/etl/jobs/iceberg.py",)
CELERY = ("tests/cluster/celery.py",)
CELERY_PACKAGES = (
    "apache-airflow-providers-apache-hdfs", "apache-airflow-providers-celery", "apache-airflow-providers-git",
    "asyncpg", "psycopg2-binary",
)  # fmt: skip
SCHEDULERS = ("tests/cluster/schedulers.py",)
NAME_NODES = ("tests/cluster/name_nodes.py",)
BARE_NODES = ("tests/cluster/test_bare_nodes.py",)

SECTIONS = {
    "Hadoop": """HDFS and YARN (CapacityScheduler) run on one machine. The client is that of pyspark: Hadoop 3.5.0.
YARN before 3.3 finds a queue only by its name: write `queue="etl"`, not `root.etl`.""",
    "Cluster": """Hadoop of the locked version. Schedulers: queues below other queues, one of them created on demand,
and a FairScheduler. NameNodes: a pair, of which the active one is killed during the pipeline.""",
    "Java": """The Java of the nodes. Spark 4 needs Java 17, which is shipped in a packed environment. The row expects
Java where Debian and Ubuntu install it: `apt-get install openjdk-8-jre-headless`.""",
    "Python": """The quick tests. For 3.14 the requirements resolve, and their packages have wheels, but for four of
Python alone: pyspark, pyspark-client, hdfs and docopt.""",
    "Spark": """Exports, evaluations, predictions and the data source on local[2], and the pipeline on Hadoop.
pyspark 4.3.0 is installed over pyspark-client 4.2.0; the package does not allow it, as there is no client 4.3.""",
    "Sources": """Versions of the tables of Delta Lake and Iceberg, whose jars Maven fetches, and Python functions of
every kind in `prepare` over Delta Lake. Iceberg has no jars for Spark 4.2: its row has Spark 4.1.3.""",
    "torch": """Data, checkpoints, model formats, the loop, and strategies with several workers, but for Horovod. The
package requires torch 2.10: in 2.6 a checkpoint cannot be written without a process group.""",
    "pandas": "Evaluations, predictions, features, DataFrames of a dataset, and models as MLflow writes them.",
    "Packages": """The lowest versions that the package allows, but for Airflow and its pydantic: exports, evaluations,
predictions, the trainer and the Airflow side. pyspark 4.1 refuses a pandas before 2.2, such as that of the constraints
of Airflow 3.1.5.""",
    "Airflow": """The tests of the Airflow side, the examples with Airflow's pages, and the pipeline on Hadoop, with a
worker that is killed. An Airflow has the other packages of its day, as its users have. Before 3.3, Airflow does not
call `on_kill` of a trigger: the application of a deferred task that is cleared runs on until the next attempt
reattaches to it, or `trainyard app reap` ends it.""",
    "Executor": """A pipeline on Hadoop by Airflow's Celery executor, with PostgreSQL, Redis, two workers, two
schedulers, a Git bundle, logs in HDFS, and a root filesystem and `AIRFLOW_HOME` that are read-only. Both workers and a
scheduler are killed when the first application runs, one worker is started again, and the code of the DAG changes.""",
}
"""What the rows of each software run."""


@dataclass(frozen=True)
class Row:
    """One version of one software, and the tests that run with it.

    Attributes:
        software: The software, a key of `SECTIONS`.
        version: Its version.
        tests: The arguments of pytest.
        packages: Requirements that replace the locked versions of packages.
        added: Requirements beside the locked packages.
        last: Versions of packages that are installed over the others, whatever those require.
        python: The version of Python, an empty string for that of this environment.
        variables: Environment variables of the tests.
        day: The day as of which `packages` and what they need are resolved, an empty string for today. Those of them
            that the other requirements do not allow are newer.
        minutes: The time after which the tests are ended.
        gigabytes: The disk that its environment takes beside those of other rows, downloads included.
    """

    software: str
    version: str
    tests: tuple[str, ...]
    packages: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    python: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    day: str = ""
    minutes: int = 20
    gigabytes: int = 1

    @property
    def name(self) -> str:
        """The name by which a row is chosen, such as "hadoop-3.3.6"."""
        return f"{self.software.lower()}-{self.version}"


def _build_hadoop(version: str) -> Row:
    return Row("Hadoop", version, CLUSTER, variables={"TRAINYARD_HADOOP_VERSION": version})


def _build_spark(version: str) -> Row:
    # Both write the same folder, so that both have one version.
    return Row(
        "Spark", version, SPARK, packages=(f"pyspark=={version}", f"pyspark-client=={version}"), minutes=40, gigabytes=2
    )


def _build_airflow(version: str, day: str = "") -> Row:
    return Row("Airflow", version, AIRFLOW, (f"apache-airflow=={version}",), day=day, minutes=60, gigabytes=2)


def read_lowest(text: str) -> tuple[str, ...]:
    """Return the lowest versions that a pyproject.toml allows for the nodes, without Airflow, as requirements."""
    project = tomllib.loads(text)["project"]
    allowed = map(Requirement, (*project["dependencies"], *project["optional-dependencies"]["cluster"]))
    bounds = {r.name: one.version for r in allowed for one in r.specifier if one.operator == ">=" and not r.marker}
    return tuple(f"{name}=={version}" for name, version in bounds.items() if not name.startswith("apache-airflow"))


def _build_lowest() -> Row:
    # Airflow 3.3 allows pydantic 2.11, and its commands fail with it; Airflow 3.1 runs with it.
    packages = [package for package in read_lowest((ROOT / "pyproject.toml").read_text()) if "pydantic" not in package]
    return Row("Packages", "lowest", LOWEST, ("pydantic==2.12", *packages), minutes=40, gigabytes=7)


ROWS = (
    *(_build_hadoop(version) for version in ("3.2.4", "3.3.6", "3.4.3", "3.5.0")),
    Row("Cluster", "schedulers", SCHEDULERS),
    Row("Cluster", "name-nodes", NAME_NODES),
    Row("Java", "8", BARE_NODES, variables={"TRAINYARD_NODE_JAVA": "/usr/lib/jvm/java-8-openjdk-amd64/jre"}),
    *(Row("Python", version, QUICK, python=version, gigabytes=4) for version in ("3.11", "3.12", "3.13", "3.14")),
    _build_spark("4.1.3"),
    Row("Spark", "4.3.0", SPARK, ("pyspark==4.3.0",), last=("pyspark==4.3.0",), minutes=40, gigabytes=2),
    Row("Sources", "delta-4.4.0", DELTA),
    Row("Sources", "iceberg-1.12.0", ICEBERG, ("pyspark==4.1.3", "pyspark-client==4.1.3"), gigabytes=2),
    *(Row("torch", version, TORCH, (f"torch=={version}",), gigabytes=6) for version in ("2.6.0", "2.10.0")),
    Row("pandas", "3.1.1", PANDAS, packages=("pandas==3.1.1",)),
    _build_lowest(),
    _build_airflow("3.1.8", day="2026-03-20"),
    _build_airflow("3.2.2", day="2026-06-15"),
    Row("Executor", "celery", CELERY, added=CELERY_PACKAGES),
)


def select_rows(names: Sequence[str]) -> list[Row]:
    """Return the rows with these names, all rows if there are no names.

    Raises:
        SystemExit: There is no row with a name.
    """
    known = {row.name: row for row in ROWS}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"ROWS: there is no row {unknown[0]!r}; use one of {', '.join(known)}")
    return [known[name] for name in names] if names else list(ROWS)


def merge_requirements(texts: Sequence[str], packages: Sequence[str]) -> str:
    """Return the requirements of several files as one, without hashes; `packages` replace those of the same names."""
    replaced = {_get_name(package) for package in packages}
    lines = [line.removesuffix(" \\") for text in texts for line in text.splitlines() if line and line[0].isalnum()]
    return "".join(f"{line}\n" for line in (*(line for line in lines if _get_name(line) not in replaced), *packages))


def _get_name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
