"""A plan is a value that depends on the job, the connection and this installation, on nothing else."""

import re
from dataclasses import replace
from typing import Any

import pytest

from trainyard.clusters.local import count_slots
from trainyard.clusters.registry import find_cluster
from trainyard.errors import TrainyardError
from trainyard.planning import plan as plans
from trainyard.planning.executors import Executors
from trainyard.planning.job import Job, Runtime, SparkConnection
from trainyard.planning.paths import application_tag, run_directory, storage_tag
from trainyard.planning.placement import Isolation, Placement
from trainyard.planning.plan import Plan
from trainyard.planning.sizing import Memory
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.yarn.settings import OPTION_OF_GROUP_SETTING, OPTION_OF_SETTING, RESERVED

YARN = SparkConnection("spark_default", "yarn", queue="etl", deploy_mode="cluster")
RUNTIME = Runtime(program="/p/driver.py", py_files=("/c/code.zip",), env={"PYSPARK_PYTHON": "/venv/python"})


def task_key(**fields: Any) -> TaskKey:
    return TaskKey(
        **({"dag_id": "toy", "run_id": "r1", "task_id": "train", "directory": "file:///s/runs/toy/r1"} | fields)
    )


def build_plan(job: Job, spark: SparkConnection, runtime: Runtime) -> Plan:
    return plans.build_plan(job, find_cluster(spark), runtime)


def planned(master: str = "local[2]", workers: int | None = None, daemon: str | None = None, **conf: str) -> Plan:
    spec = {"recipe": "toy.recipe:network"}
    job = Job("TrainOperator 'train'", task_key(), "file:///s", spec, workers=workers, daemon=daemon, conf=conf)
    return build_plan(job, SparkConnection("spark_default", master), RUNTIME)


def test_python_in_containers_reads_hdfs_by_the_configuration_that_spark_ships() -> None:
    job = Job("TrainOperator 'train'", task_key(), "file:///s", {})
    conf = build_plan(job, SparkConnection("spark_default", "yarn", deploy_mode="cluster"), RUNTIME).conf
    for prefix in ("spark.yarn.appMasterEnv", "spark.executorEnv"):
        # Not {{PWD}}: YARN fills that in for the container, but PySpark hands the setting to its workers as it is.
        assert conf[f"{prefix}.HADOOP_CONF_DIR"] == "./__spark_conf__/__hadoop_conf__"


HADOOP_USERS = ("spark.yarn.appMasterEnv.HADOOP_USER_NAME", "spark.executorEnv.HADOOP_USER_NAME")


@pytest.mark.parametrize(
    ("user", "defaults", "options", "expected"),
    [
        ("etl", {}, {}, ("etl", "etl")),
        (None, {}, {}, (None, None)),
        ("etl", {}, {"env_vars": {"HADOOP_USER_NAME": "owner"}}, ("owner", "owner")),
        ("etl", {}, {"conf": {HADOOP_USERS[1]: "owner"}}, ("etl", "owner")),
        ("etl", {HADOOP_USERS[0]: "owner"}, {}, (None, "etl")),
    ],
    ids=["simple authentication", "Kerberos", "env_vars", "conf", "spark-defaults.conf"],
)
def test_containers_access_hdfs_as_the_user_who_submits_unless_another_one_is_named(
    user: str | None, defaults: dict[str, str], options: dict[str, Any], expected: tuple[str | None, str | None]
) -> None:
    job = Job("TrainOperator 'train'", task_key(), "file:///s", {}, **options)
    conf = build_plan(job, YARN, replace(RUNTIME, user=user, defaults=defaults)).conf
    assert tuple(conf.get(name) for name in HADOOP_USERS) == expected


AUTHENTICATION = ("spark.authenticate", "spark.network.crypto.enabled")


@pytest.mark.parametrize(
    ("spark", "defaults", "conf", "expected"),
    [
        (YARN, {}, {}, ("true", "true")),
        (YARN, {"spark.authenticate": "false"}, {}, (None, None)),
        (YARN, {}, {"spark.authenticate": "false"}, ("false", None)),
        (YARN, {"spark.shuffle.service.enabled": "true"}, {}, (None, None)),
        (SparkConnection("spark_default", "local[2]"), {}, {}, (None, None)),
    ],
    ids=["YARN", "spark-defaults.conf", "conf", "shuffle service", "local master"],
)
def test_containers_authenticate_each_other_unless_the_site_has_decided(
    spark: SparkConnection, defaults: dict[str, str], conf: dict[str, str], expected: tuple[str | None, str | None]
) -> None:
    job = Job("TrainOperator 'train'", task_key(), "file:///s", {}, conf=conf)
    settings = build_plan(job, spark, replace(RUNTIME, defaults=defaults)).conf
    assert tuple(settings.get(name) for name in AUTHENTICATION) == expected


def test_the_same_job_gives_the_same_plan() -> None:
    assert planned(workers=2) == planned(workers=2)


def test_the_plan_has_what_the_job_requests_and_the_installation_provides() -> None:
    job = Job(
        "TrainOperator 'train'", task_key(), "file:///s", {"recipe": "toy.recipe:network"}, modules=("torch",),
        workers=4, min_workers=2, memory=Memory(heap="3g"), driver_memory=Memory(heap="2g"), grow_memory_to="8g",
        placement=Placement(queue="train", workers_per_container=2), preflight="warn", jars=("a.jar",),
        packages=("g:a:1",),
    )  # fmt: skip
    plan = build_plan(job, YARN, RUNTIME)
    assert plan.job == job
    assert (plan.name, plan.tag, plan.spark) == ("toy.train", application_tag(task_key()), YARN)
    assert (plan.program, plan.py_files) == (RUNTIME.program, RUNTIME.py_files)
    assert plan.spec_uri == "file:///s/runs/toy/r1/specs/train.json"
    assert plan.env == {**RUNTIME.env, "TRAINYARD_TAG": plan.tag}


def test_the_only_argument_is_the_uri_of_the_job_spec_of_the_attempt() -> None:
    assert planned().arguments == ("--spec", "file:///s/runs/toy/r1/attempts/train/1.json")


def test_the_users_configuration_wins() -> None:
    plan = planned(**{"spark.ui.enabled": "true", "spark.driver.memory": "2g"})
    assert plan.conf["spark.ui.enabled"] == "true"
    assert plan.conf["spark.driver.memory"] == "2g"
    assert plan.conf["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_worker_group_gets_all_slots_at_once_or_an_early_error() -> None:
    assert planned(workers=2).conf["spark.dynamicAllocation.enabled"] == "false"
    assert "spark.dynamicAllocation.enabled" not in planned().conf


def test_local_workers_are_forked_from_a_daemon_that_has_their_imports() -> None:
    conf = planned(daemon="my.daemon").conf
    assert conf["spark.python.daemon.module"] == "my.daemon"
    assert conf["spark.executorEnv.PYTHONPATH"] == "/c/code.zip", "the daemon starts before Spark puts it on the path"
    assert "spark.python.daemon.module" not in planned().conf


def test_nothing_is_forked_after_the_import_of_torch_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert "spark.python.daemon.module" not in planned(daemon="my.daemon").conf


@pytest.mark.parametrize(("workers", "native", "daemon"), [(2, "3g", "my.daemon"), (2, "2g", None), (None, "8g", None)])
def test_workers_of_a_group_are_forked_from_it_in_containers_with_memory_for_it(
    workers: int | None, native: str, daemon: str | None
) -> None:
    job = Job(
        "TrainOperator 'train'", task_key(), "file:///s", {"recipe": "toy.recipe:network"}, daemon="my.daemon",
        workers=workers, memory=Memory(native=native),
    )  # fmt: skip
    conf = build_plan(job, YARN, RUNTIME).conf
    assert conf.get("spark.python.daemon.module") == daemon
    assert "spark.executorEnv.PYTHONPATH" not in conf, "Spark puts the code on the path of its containers"


def test_a_python_path_of_the_user_is_kept() -> None:
    conf = planned(daemon="my.daemon", **{"spark.executorEnv.PYTHONPATH": "/mine"}).conf
    assert conf["spark.executorEnv.PYTHONPATH"] == "/c/code.zip:/mine"


def test_more_workers_than_slots_are_refused_before_anything_starts() -> None:
    with pytest.raises(TrainyardError) as refused:
        planned("local[2]", workers=4)
    assert str(refused.value) == (
        "TrainOperator 'train': 4 workers must run at once, and master local[2] has 2 slots. "
        "Write local[4] as the host of connection 'spark_default', or workers=2."
    )


@pytest.mark.parametrize(("name", "instead"), OPTION_OF_SETTING.items())
def test_a_setting_that_an_operator_option_controls_is_refused(name: str, instead: str) -> None:
    job = Job("TrainOperator 'train'", task_key(), "file:///s", {}, conf={name: "1"})
    with pytest.raises(TrainyardError, match=re.escape(f"conf sets {name}, which is computed; write {instead}.")):
        build_plan(job, SparkConnection("spark_default", "yarn", deploy_mode="cluster"), RUNTIME)


@pytest.mark.parametrize(("master", "gpus", "notes"), [("local[2]", 1, 1), ("local[2]", 0, 0), ("yarn", 1, 0)])
def test_a_gpu_that_a_local_master_does_not_assign_is_a_note(master: str, gpus: int, notes: int) -> None:
    job = Job("TrainOperator 'train'", task_key(), "file:///s", {}, workers=2, gpus=gpus)
    plan = build_plan(job, SparkConnection("spark_default", master, deploy_mode="cluster"), RUNTIME)
    assert len(plan.notes) == notes
    assert not notes or plan.notes[0].startswith(
        "gpus_per_worker=1 does not apply: master local[2] assigns no GPUs. Processes use those that torch finds"
    )


def test_an_elastic_group_needs_slots_for_its_minimum() -> None:
    job = Job("TrainOperator 'train'", task_key(), "file:///s", {}, workers=4, min_workers=2)
    plan = build_plan(job, SparkConnection("spark_default", "local[2]"), RUNTIME)
    assert plan.containers == "1 driver + 2 to 4 workers, 2 of them on local[2]"
    with pytest.raises(TrainyardError, match="2 workers must run at once, and master local has 1 slot"):
        build_plan(job, SparkConnection("spark_default", "local"), RUNTIME)


def on_yarn(workers: int, placement: Placement, min_workers: int | None = None, gpus: int = 0) -> Plan:
    job = Job(
        "TrainOperator 'train'", task_key(), "file:///s", {}, workers=workers, min_workers=min_workers,
        placement=placement, gpus=gpus,
    )  # fmt: skip
    return build_plan(job, SparkConnection("spark_default", "yarn", deploy_mode="cluster"), RUNTIME)


def test_workers_in_one_container_share_its_cores_and_gpus() -> None:
    conf = on_yarn(4, Placement(workers_per_container=2), gpus=2).conf
    assert (conf["spark.executor.instances"], conf["spark.executor.cores"]) == ("2", "2")
    assert (conf["spark.executor.resource.gpu.amount"], conf["spark.task.resource.gpu.amount"]) == ("4", "2")
    assert conf["spark.executor.resource.gpu.discoveryScript"] == "./gpus.sh"


def test_a_task_of_a_stage_uses_one_of_the_gpus_of_its_executor() -> None:
    """Also where one Placement with workers_per_container is that of all operators."""
    placement = Placement(workers_per_container=2)
    job = Job("PredictOperator 'predict'", task_key(), "file:///s", {}, gpus=3, placement=placement)
    conf = build_plan(job, YARN, RUNTIME).conf
    assert (conf["spark.executor.resource.gpu.amount"], conf["spark.task.resource.gpu.amount"]) == ("3", "1")


@pytest.mark.parametrize(
    ("cores", "defaults", "conf", "expected"),
    [
        (None, {}, {}, "2"), (None, {}, {"spark.task.cpus": "3"}, "6"), (None, {"spark.task.cpus": "3"}, {}, "6"),
        (None, {"spark.executor.cores": "4"}, {}, None), (None, {"spark.executor.cores": "1"}, {}, "2"),
        (2, {}, {}, "2"), (5, {}, {}, "5"),
    ],
)  # fmt: skip
def test_an_executor_has_cores_for_a_task_of_each_of_its_gpus(
    cores: int | None, defaults: dict[str, str], conf: dict[str, str], expected: str | None
) -> None:
    job = Job("PredictOperator 'predict'", task_key(), "", {}, gpus=2, executors=Executors(cores=cores), conf=conf)
    plan = build_plan(job, YARN, replace(RUNTIME, defaults=defaults))
    assert plan.conf.get("spark.executor.cores") == expected
    assert plan.executors.cores == (int(expected) if expected else None)


def test_fewer_cores_than_the_tasks_of_all_gpus_use_are_refused() -> None:
    job = Job("PredictOperator 'predict'", task_key(), "", {}, gpus=2, executors=Executors(cores=3))
    with pytest.raises(
        TrainyardError,
        match=r"^PredictOperator 'predict': cores_per_executor=3 is less than .* gpus_per_executor=2 use, 4: .* Write "
        r"cores_per_executor=4, or fewer GPUs\.$",
    ):
        build_plan(replace(job, conf={"spark.task.cpus": "2"}), YARN, RUNTIME)
    assert build_plan(job, YARN, RUNTIME).executors.cores == 3


@pytest.mark.parametrize("isolation", ["labels", "whole_node"])
def test_no_gpu_is_requested_where_the_cluster_does_not_count_them(isolation: Isolation) -> None:
    plan = on_yarn(2, Placement(node_label="gpu", isolation=isolation), gpus=1)
    assert not [name for name in plan.conf if "gpu" in name]
    assert not [file for file in plan.files if "gpus" in file]


def test_the_example_of_dl4j_has_the_containers_that_its_users_request() -> None:
    """4 executors x 8 cores in 11 GB: 4 GB heap, 5 GB native, 1 GB more."""
    memory = Memory(heap="4g", native="5g", jvm_overhead="1g")
    job = Job("TrainOperator 'train'", task_key(), "file:///s", {}, workers=4, cores_per_worker=8, memory=memory)
    plan = build_plan(job, YARN, RUNTIME)
    requested = {
        "spark.executor.instances": "4", "spark.executor.cores": "8", "spark.task.cpus": "8",
        "spark.executor.memory": "4096m", "spark.executor.memoryOverhead": "6144m",
    }  # fmt: skip
    assert requested.items() <= plan.conf.items()
    assert plan.containers == "1 driver + 4 workers of 8 cores"


def test_workers_of_one_container_request_the_cores_of_all() -> None:
    placement = Placement(workers_per_container=2)
    job = Job("TrainOperator 'train'", task_key(), "file:///s", {}, workers=4, cores_per_worker=3, placement=placement)
    conf = build_plan(job, YARN, RUNTIME).conf
    assert (conf["spark.executor.instances"], conf["spark.executor.cores"], conf["spark.task.cpus"]) == ("2", "6", "3")


@pytest.mark.parametrize(
    ("requested", "conf", "containers"),
    [
        (Executors(), {}, "1 driver + executors"),
        (
            Executors(count=4, cores=8),
            {"spark.executor.instances": "4", "spark.executor.cores": "8"},
            "1 driver + 4 executors of 8 cores",
        ),
        (Executors(count=1, cores=1), {"spark.executor.cores": "1"}, "1 driver + 1 executor of 1 core"),
        (
            Executors(count=8, min_count=2),
            {
                "spark.dynamicAllocation.enabled": "true",
                "spark.dynamicAllocation.shuffleTracking.enabled": "true",
                "spark.dynamicAllocation.minExecutors": "2",
                "spark.dynamicAllocation.maxExecutors": "8",
            },
            "1 driver + 2 to 8 executors",
        ),
    ],
)
def test_executors_of_a_stage(requested: Executors, conf: dict[str, str], containers: str) -> None:
    job = Job("ExportOperator 'export'", task_key(), "file:///s", {}, executors=requested)
    plan = build_plan(job, YARN, RUNTIME)
    assert conf.items() <= plan.conf.items()
    assert plan.containers == containers
    assert "spark.task.cpus" not in plan.conf
    local = build_plan(job, SparkConnection("spark_default", "local[2]"), RUNTIME)
    assert local.containers == "1 process, 2 slots"
    assert not conf.keys() & local.conf.keys()


@pytest.mark.parametrize(("name", "instead"), OPTION_OF_GROUP_SETTING.items())
def test_a_worker_group_has_options_of_its_own_for_cores(name: str, instead: str) -> None:
    job = Job("TrainOperator 'train'", task_key(), "file:///s", {}, workers=2, conf={name: "1"})
    with pytest.raises(TrainyardError, match=re.escape(f"conf sets {name}, which is computed; write {instead}.")):
        build_plan(job, YARN, RUNTIME)


def test_environment_variables_reach_driver_and_executors() -> None:
    job = Job("ExportOperator 'export'", task_key(), "file:///s", {}, env_vars={"TZ": "UTC"})
    on_cluster = build_plan(job, YARN, RUNTIME)
    assert on_cluster.conf["spark.yarn.appMasterEnv.TZ"] == on_cluster.conf["spark.executorEnv.TZ"] == "UTC"
    assert "TZ" not in on_cluster.env
    assert build_plan(job, SparkConnection("spark_default", "local[2]"), RUNTIME).env["TZ"] == "UTC"


def test_files_of_the_user_are_added_to_those_of_the_placement() -> None:
    job = Job(
        "TrainOperator 'train'", task_key(), "file:///s", {}, workers=1, files=("/labels.csv",), jars=("/x.jar",),
        packages=("g:a:1",), gpus=1,
    )  # fmt: skip
    plan = build_plan(job, YARN, RUNTIME)
    assert [file.rpartition("/")[2] for file in plan.files] == ["labels.csv", "gpus.sh", "sigterm.sh"]
    assert (plan.job.jars, plan.job.packages) == (("/x.jar",), ("g:a:1",))


@pytest.mark.parametrize(("workers", "min_workers"), [(3, None), (4, 3), (3, 2)])
def test_every_container_has_the_same_number_of_workers(workers: int, min_workers: int | None) -> None:
    """Also the containers of the smallest group that may start."""
    with pytest.raises(TrainyardError, match=r"workers_per_container=2 does not divide workers=3; .* Write a divisor"):
        on_yarn(workers, Placement(workers_per_container=2), min_workers)


def test_workers_per_container_do_not_apply_to_a_stage_without_workers_or_a_local_master() -> None:
    """So one Placement may be that of all operators, in `default_args`."""
    placement = Placement(workers_per_container=2)
    export = Job("ExportOperator 'export'", task_key(), "file:///s", {}, placement=placement)
    assert build_plan(export, YARN, RUNTIME).job.workers is None
    train = Job("TrainOperator 'train'", task_key(), "file:///s", {}, workers=1, placement=placement)
    assert build_plan(train, SparkConnection("spark_default", "local[2]"), RUNTIME).executors.count == 1


def test_an_elastic_group_of_whole_containers_is_planned() -> None:
    plan = on_yarn(6, Placement(workers_per_container=2), min_workers=4)
    assert (plan.job.needed_workers, plan.conf["spark.executor.instances"]) == (4, "3")


@pytest.mark.parametrize(
    ("master", "slots"),
    [("local", 1), ("local[3]", 3), ("local[4, 2]", 4), ("local-cluster[2,3,1024]", 6)],
)
def test_slots_of_a_local_master(master: str, slots: int) -> None:
    assert count_slots(master) == slots


def test_a_tag_is_unique_to_a_task_and_the_same_for_its_retries() -> None:
    assert application_tag(task_key(try_number=1)) == application_tag(task_key(try_number=2))
    tags = {application_tag(task_key(**other)) for other in ({}, {"map_index": 0}, {"task_id": "x"}, {"run_id": "r2"})}
    assert len(tags) == 4


def test_on_yarn_an_application_has_its_tag_and_outlives_airflow() -> None:
    plan = build_plan(Job("TrainOperator 'train'", task_key(), "file:///s", {}, workers=2), YARN, RUNTIME)
    assert plan.conf["spark.yarn.tags"].split(",") == [plan.tag, "trainyard", storage_tag("file:///s")]
    assert plan.conf["spark.yarn.submit.waitAppCompletion"] == "false"
    assert plan.conf["spark.scheduler.minRegisteredResourcesRatio"] == "0"
    assert (plan.conf["spark.executor.instances"], plan.conf["spark.executor.cores"]) == ("2", "1")
    assert "SPARK_LOCAL_IP" not in plan.env


def planned_on_yarn(**conf: str) -> Plan:
    return build_plan(Job("TrainOperator 'train'", task_key(), "file:///s", {}, conf=conf), YARN, RUNTIME)


def test_tags_of_the_user_are_added_to_those_by_which_the_application_is_found() -> None:
    plan = planned_on_yarn(**{"spark.yarn.tags": "team-x, nightly,"})
    assert plan.conf["spark.yarn.tags"] == f"{planned_on_yarn().conf['spark.yarn.tags']},team-x,nightly"


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ("a,b,c,d,e,f,g", "YARN allows ten tags and Trainyard needs four, so write at most 6"),
        ("größe", r"at most 100 characters of ASCII, without spaces\.$"),
        ("x" * 101, "at most 100 characters of ASCII"),
        ("team-x,Trainyard-1", "begin with trainyard-. Write another tag instead of 'Trainyard-1'"),
    ],
)
def test_tags_that_yarn_or_trainyard_would_mistake_are_named(tags: str, message: str) -> None:
    with pytest.raises(
        TrainyardError, match=rf"^TrainOperator 'train': conf sets spark.yarn.tags='{tags}'; .*{message}"
    ):
        planned_on_yarn(**{"spark.yarn.tags": tags})


def test_as_many_tags_as_yarn_allows_are_added() -> None:
    assert planned_on_yarn(**{"spark.yarn.tags": "a,b,c,d,e,f"}).conf["spark.yarn.tags"].endswith(",a,b,c,d,e,f")


@pytest.mark.parametrize("name", RESERVED)
def test_settings_that_submission_rests_on_are_refused_on_yarn(name: str) -> None:
    with pytest.raises(TrainyardError, match=rf"conf sets {name}='2', which Trainyard decides: .*\. Leave it out\.$"):
        planned_on_yarn(**{name: "2"})
    assert planned(**{name: "2"}).conf[name] == "2", "a local master submits by other rules"


def test_a_tag_is_what_yarn_makes_of_it() -> None:
    """YARN makes tags lower case, and refuses characters that are not ASCII."""
    tag = application_tag(task_key(task_id="Größe_1"))
    assert tag.startswith("trainyard-task-gr__e_1-") and tag == tag.lower() and tag.isascii()
    assert application_tag(task_key(task_id="A")) != application_tag(task_key(task_id="a"))


def test_memory_and_placement_become_settings_only_on_yarn() -> None:
    job = Job(
        "TrainOperator 'train'", task_key(), "file:///s", {}, workers=2, memory=Memory(heap="1g", native="2g"),
        driver_memory=Memory(heap="512m"), placement=Placement(queue="train", node_label="gpu"), gpus=1,
    )  # fmt: skip
    plan = build_plan(job, YARN, RUNTIME)
    assert plan.conf["spark.executor.memoryOverhead"] == "2432m"
    assert plan.conf["spark.driver.memory"] == "512m"
    assert plan.job.placement.queue == "train"
    assert [file.rsplit("/", 1)[-1] for file in plan.files] == ["gpus.sh", "sigterm.sh"]
    local = build_plan(job, SparkConnection("spark_default", "local[2]"), RUNTIME)
    assert not [name for name in local.conf if "yarn" in name or "memory" in name.lower() or "gpu" in name]
    assert local.files == ()


@pytest.mark.parametrize("mode", ["client", None])
def test_on_yarn_only_cluster_deploy_mode_is_accepted(mode: str | None) -> None:
    client = SparkConnection("spark_default", "yarn", deploy_mode=mode)
    with pytest.raises(TrainyardError) as refused:
        build_plan(Job("TrainOperator 'train'", task_key(), "file:///s", {}), client, RUNTIME)
    assert str(refused.value) == (
        "TrainOperator 'train': connection 'spark_default' has deploy-mode client; on YARN the driver must outlive "
        'processes of Airflow. Write {"deploy-mode": "cluster"} in its extra.'
    )


def test_a_run_id_of_any_characters_names_a_directory_of_its_own() -> None:
    plan = run_directory("file:///s", "toy", "manual__2026-01-01T00:00:00+00:00")
    assert plan.startswith("file:///s/runs/toy/manual__2026-01-01T00_00_00_00_00-")
    assert plan != run_directory("file:///s", "toy", "manual__2026-01-01T00_00_00+00:00")
    assert "/.." not in run_directory("file:///s", "..", "../../etc")
