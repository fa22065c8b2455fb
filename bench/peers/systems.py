"""The systems that are compared: their jobs, commands and environments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
JOBS = Path(__file__).parent / "jobs"


@dataclass(frozen=True, eq=False)
class System:
    """A system and its job.

    Attributes:
        name: Its name in the results.
        title: How the page calls it.
        documentation: The page whose recommendation the job follows.
        program: The command, whose first word is in the environment's `bin`.
        packages: The packages whose versions are reported.
        airflow: Whether the command needs an Airflow home.
        imports: Folders of the checkout on the path of imports.
        place: Where it runs: `local` or `yarn`.
        variables: Environment variables of the command.
    """

    name: str
    title: str
    documentation: str
    program: tuple[str, ...]
    packages: tuple[str, ...]
    airflow: bool = False
    imports: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    place: str = "local"

    @property
    def job(self) -> str:
        """Its folder in `jobs/`, and the name of its requirements."""
        return self.name.removesuffix(f"-{YARN}")

    @property
    def files(self) -> list[Path]:
        """The files that a user writes."""
        other = "dag.py" if self.place == YARN else f"{YARN}.py"
        return sorted(file for file in (JOBS / self.job).rglob("*.py") if file.name != other)


YARN = "yarn"
AIRFLOW = ("airflow", "dags", "test", "mnist")
AIRFLOW_ON_YARN = ("airflow", "dags", "test", "mnist_yarn", "2026-01-01")
SYSTEMS = (
    System(
        "trainyard", "Trainyard", "README.md", AIRFLOW, ("apache-airflow", "pyspark", "torch"), airflow=True,
        imports=("plugins", "."),
        variables={"AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins")},
    ),
    System(
        "torchdistributor", "SparkSubmitOperator + TorchDistributor",
        "https://spark.apache.org/docs/latest/api/python/reference/api/pyspark.ml.torch.distributor.TorchDistributor.html",
        AIRFLOW, ("apache-airflow", "apache-airflow-providers-apache-spark", "pyspark", "torch"), airflow=True,
    ),
    System(
        "ray", "Ray Data + Ray Train", "https://docs.ray.io/en/latest/train/user-guides/fault-tolerance.html",
        ("python", "train.py"), ("ray", "torch"),
        # Ray's workers would have a niceness of 15, which on a busy machine the other systems' have not.
        variables={"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"},
    ),
    System(
        "lightning", "Lightning + Parquet DataLoader",
        "https://lightning.ai/docs/pytorch/stable/clouds/cluster_intermediate_2.html",
        ("torchrun", "--standalone", "--nproc-per-node=2", "--max-restarts=2", "train.py"), ("lightning", "torch"),
    ),
    System(
        "horovod", "Horovod's TorchEstimator", "https://horovod.readthedocs.io/en/stable/spark_include.html",
        ("python", "train.py"), ("horovod", "pyspark", "petastorm", "pyarrow", "torch"),
    ),
)  # fmt: skip
_TRAINYARD, _TORCHDISTRIBUTOR, *_ = SYSTEMS
SYSTEMS_ON_YARN = (
    replace(_TRAINYARD, name="trainyard-yarn", program=AIRFLOW_ON_YARN, place=YARN),
    replace(
        _TORCHDISTRIBUTOR, name="torchdistributor-yarn", program=AIRFLOW_ON_YARN, place=YARN,
        documentation="https://airflow.apache.org/docs/apache-airflow-providers-apache-spark/stable/operators.html",
    ),
)  # fmt: skip
PLACES = {"local": SYSTEMS, YARN: SYSTEMS_ON_YARN}
