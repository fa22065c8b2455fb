"""What nodes need beside code: Spark's jars, Python and Java, uploaded to storage once for each content."""

from __future__ import annotations

import hashlib
import string
import tempfile
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.errors import TrainyardError
from trainyard.files import permissions, storage, uris
from trainyard.planning.runtime import node_python, spark_defaults

PROVIDED = ("spark.yarn.archive", "spark.yarn.jars")
ARCHIVES = "spark.archives"
ARCHIVES_FOLDER = "environments"
"""The folder of uploaded archives, below the storage root."""
DIGITS = 16
"""The digits of its sha256 with which the name of an uploaded archive begins."""
FOLDER = "environment"
"""The folder in a container's working directory where YARN unpacks a packed environment."""

PACKED_PYTHON = f"./{FOLDER}/bin/python"
PACKED_JAVA = f"{{{{PWD}}}}/{FOLDER}/java"
"""The JAVA_HOME of a packed environment; YARN replaces {{PWD}} by the container's working directory."""

_PYTHON = "spark.pyspark.python"
_JAVA = "spark.executorEnv.JAVA_HOME"


@dataclass(frozen=True)
class NodeRuntime:
    """The Python and the Java with which an application runs on the nodes.

    Attributes:
        python: The path of the Python, relative to the container's working directory if it is shipped.
        java_home: The JAVA_HOME of the application, None for the nodes' own.
        archives: The URIs of shipped archives, by the folder that they are unpacked in.
    """

    python: str
    java_home: str | None = None
    archives: Mapping[str, str] = field(default_factory=dict)

    @property
    def on_hdfs(self) -> dict[str, str]:
        """The archives that YARN can fetch without Spark, which uploads local ones when it submits."""
        return {folder: uri for folder, uri in self.archives.items() if uri.startswith("hdfs://")}

    @property
    def is_checkable(self) -> bool:
        """Whether a probe can run it: it is on the nodes, or in an archive on HDFS."""
        return self.python.startswith("/") or self.python.removeprefix("./").partition("/")[0] in self.on_hdfs


def node_runtime(conf: Mapping[str, str], env: Mapping[str, str]) -> NodeRuntime:
    """Return what an application with this Spark configuration and environment runs on the nodes."""
    known = {**spark_defaults(), **conf}
    return NodeRuntime(node_python(conf, env), known.get(_JAVA), find_archives(known))


def find_archives(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the URIs of the archives that a Spark configuration names, by the folder that they are unpacked in."""
    entries = [entry.strip().partition("#") for entry in conf.get(ARCHIVES, "").split(",") if entry.strip()]
    return {name or uri.rpartition("/")[2]: uri for uri, _, name in entries}


def settings(root: str, known: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """Return the settings that name Spark's jars and the user's archives in storage.

    Args:
        root: The storage root, a URI.
        known: The settings so far. Jars that they name are not uploaded.
        spark_home: The Spark installation with the jars.
    """
    changes = {}
    if not any(name in known for name in PROVIDED):
        changes["spark.yarn.archive"] = spark_archive(root, spark_home)
    if ARCHIVES in known:
        changes[ARCHIVES] = ",".join(upload_archive(root, entry.strip()) for entry in known[ARCHIVES].split(","))
    return changes


def packed_settings(uri: str, known: Mapping[str, str], archives: str) -> dict[str, str]:
    """Return the settings with which driver and executors run the Python and Java of a packed environment.

    Args:
        uri: The archive that `trainyard environment pack` made.
        known: The settings so far. Those that name a Python keep it.
        archives: The other archives, which remain.
    """
    if _PYTHON in known:
        return {}
    return {
        ARCHIVES: ",".join([f"{uri}#{FOLDER}", *filter(None, [archives])]),
        _PYTHON: PACKED_PYTHON,
        "spark.yarn.appMasterEnv.JAVA_HOME": PACKED_JAVA,
        _JAVA: PACKED_JAVA,
    }


def upload_archive(root: str, entry: str) -> str:
    """Upload a local file of `spark.archives` ("file#name"), named by its sha256, and return the entry for it."""
    uri, mark, name = entry.partition("#")
    if "://" in uri.removeprefix("file://"):
        return entry
    file = Path(uri.removeprefix("file://"))
    if not file.is_file():
        raise TrainyardError(
            f"{ARCHIVES} names {uri}, which is not a file of this machine. Write the path or URI of the archive."
        )
    _, digest = storage.checksum(str(file))
    target = uris.join(root, ARCHIVES_FOLDER, f"{digest[:DIGITS]}-{file.name}")
    if not storage.exists(target):
        _upload(target, file)
    return f"{target}{mark or '#'}{name or file.name}"


def is_intact(uri: str) -> bool:
    """Return whether an archive has the content of which its name has the sha256; True if its name has none."""
    digest, dash, _ = uri.rpartition("/")[2].partition("-")
    if not dash or len(digest) != DIGITS or not set(digest) <= set(string.hexdigits):
        return True
    return storage.checksum(uri)[1].startswith(digest)


def spark_archive(root: str, spark_home: Path) -> str:
    """Return the URI of an archive of the jars in `spark_home`, and upload it if it does not exist.

    The names and sizes of the jars decide its name. Of several concurrent uploads one succeeds.
    """
    jars = sorted(Path(spark_home, "jars").glob("*.jar"))
    content = "\n".join(f"{jar.name} {jar.stat().st_size}" for jar in jars)
    uri = uris.join(root, ARCHIVES_FOLDER, f"spark-{hashlib.sha256(content.encode()).hexdigest()[:16]}.zip")
    if not storage.exists(uri):
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder, "spark.zip")
            with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
                for jar in jars:
                    packed.write(jar, jar.name)
            _upload(uri, archive)
    return uri


def _upload(uri: str, archive: Path) -> None:
    """Upload an archive, which only this user may change, whatever the umask is."""
    storage.upload(uri, archive)
    for path in (uri.rpartition("/")[0], uri):
        permissions.deny_others(path)


def refuse_foreign(root: str, conf: Mapping[str, str], owners: Collection[str]) -> None:
    """Refuse archives that other users can write to: their names are known, and their code would run.

    Checked are those below the storage root, and the packed environment wherever it is. Others are of whoever has
    named them in the Spark configuration.

    Args:
        root: The storage root, a URI.
        conf: The Spark configuration of the application.
        owners: The users whose archives are used.

    Raises:
        TrainyardError: An archive, or its folder, belongs to another user, or others can write to it.
    """
    archives = {"": conf.get(PROVIDED[0], ""), **find_archives(conf)}
    folder = uris.join(root, ARCHIVES_FOLDER)
    for uri in [uri for name, uri in archives.items() if uris.is_below(folder, uri) or name == FOLDER]:
        for path in (uri.rpartition("/")[0], uri):
            access = permissions.read_access(path)
            if access and (problem := access.find_problem(owners)):
                raise TrainyardError(
                    f"{path} {problem}. Applications would run what another user has written. Remove it, and it is "
                    "uploaded again, or correct its owner and mode; name further users that you trust in Airflow's "
                    "setting `archive_owners` of section `[trainyard]`."
                )
