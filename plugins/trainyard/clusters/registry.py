"""Find the cluster of a Spark connection."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint, entry_points

from trainyard.clusters.base import Cluster
from trainyard.errors import TrainyardError
from trainyard.planning.job import SparkConnection

GROUP = "trainyard.clusters"
"""The group of entry points by which other packages add kinds of clusters."""
KINDS = {
    "local": "trainyard.clusters.local:LocalCluster",
    "local-cluster": "trainyard.clusters.local:LocalCluster",
    "spark": "trainyard.clusters.standalone:StandaloneCluster",
    "yarn": "trainyard.clusters.yarn.cluster:YarnCluster",
}
"""The class of each kind of cluster, by the word that its masters begin with."""


def find_cluster(spark: SparkConnection) -> Cluster:
    """Return the cluster of a connection.

    A class is imported when a connection names its kind. Kinds of other packages are looked for last, because all
    installed packages are read for them.

    Raises:
        TrainyardError: No kind of cluster has such a master.
    """
    word = re.split(r"[\[:]", spark.master, maxsplit=1)[0]
    path = KINDS.get(word)
    found = [EntryPoint(word, path, GROUP)] if path else list(entry_points(group=GROUP, name=word))
    kind: type[Cluster] | None = found[0].load() if found else None
    if kind is None or not re.fullmatch(kind.MASTER, spark.master):
        # The master is not repeated: whoever wrote a URL may have written a password into it.
        raise TrainyardError(
            f"connection {spark.conn_id!r}: the master that its type, host and port name is not supported; "
            "applications run on local masters, Spark standalone and YARN. Write its host as local[2], "
            "spark://HOST:7077 or yarn."
        )
    return kind(spark)
