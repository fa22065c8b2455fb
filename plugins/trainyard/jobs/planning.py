"""Build the plan of a job with the user's code, the Spark connection and the local Spark installation."""

from __future__ import annotations

from pathlib import Path

from trainyard.clusters.base import Cluster
from trainyard.clusters.registry import find_cluster
from trainyard.errors import TrainyardError
from trainyard.files import uris
from trainyard.hooks.spark import spark_connection
from trainyard.jobs.options.locations import find_all, recipes_of_models, user_code
from trainyard.planning.job import Job, Runtime
from trainyard.planning.plan import Plan, build_plan
from trainyard.planning.runtime import spark_defaults, spark_environment
from trainyard.planning.shipping.archive import DRIVER, archive_folder, build_archive
from trainyard.schemas.specs.fields import Kind
from trainyard.schemas.specs.job import JobSpec


def plan_job(
    job: Job,
    model: type[JobSpec],
    dag_file: Path,
    spark_conn_id: str,
    unshared: str | None,
    reads_models: bool = True,
) -> Plan:
    """Build the plan of a job.

    Args:
        job: The job. Fields of its spec may still be templates.
        model: The type of its spec.
        dag_file: The file of the DAG, beside which user code is searched for.
        spark_conn_id: The Spark connection.
        unshared: The `trainyard` connection, if nodes do not share local directories.
        reads_models: Whether the storage is read for the recipes of the models that the job applies.

    Raises:
        TrainyardError: There is no such connection or cluster, the storage is on a local disk, user code is missing,
            or the cluster can never run the application.
    """
    try:
        cluster = find_cluster(spark_connection(spark_conn_id))
    except TrainyardError as error:
        raise type(error)(f"{job.operator}: spark_conn_id: {error}") from None
    if unshared and cluster.slots is None:
        _refuse_local_storage(job, model, cluster, unshared)
    paths = [*user_code(model, job.spec).values(), *(recipes_of_models(model, job.spec) if reads_models else [])]
    try:
        archive = build_archive(paths, dag_file, archive_folder())
    except TrainyardError as error:
        raise type(error)(f"{job.operator}: {error}") from None
    runtime = Runtime(str(DRIVER), (str(archive),), spark_environment(), spark_defaults(), cluster.find_user())
    return build_plan(job, cluster, runtime)


def _refuse_local_storage(job: Job, model: type[JobSpec], cluster: Cluster, conn_id: str) -> None:
    named = find_all(model, job.spec, Kind.LOCATION)
    for name, uri in [("the storage ", job.storage), *((f"{name}=", uri) for name, uri in named)]:
        if isinstance(uri, str) and uris.is_local(uri):
            raise TrainyardError(
                f"{job.operator}: {name}{uri} is a directory of each machine's own, and on {cluster.NAME} the "
                "processes of an application run on several machines. Write a storage that all of them share, for "
                f"example hdfs:///trainyard, into the extra of connection {conn_id!r}; for a directory that every node "
                'mounts at this path, such as NFS, add "shared": true there.'
            )
