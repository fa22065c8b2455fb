"""The base class of operators that run one job as one Spark application."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.sdk import Asset, BaseOperator

from trainyard import links
from trainyard.compat import AirflowException
from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.hooks.trainyard import Settings, TrainyardHook
from trainyard.jobs import lineage
from trainyard.jobs.assets import emits_partitions, output_asset, select_keys
from trainyard.jobs.options import requirements, validation
from trainyard.jobs.options.base import ATTRIBUTES, HasOptions, as_lists, or_default_deferrable
from trainyard.jobs.options.common import CommonOptions, check_requests
from trainyard.jobs.options.familiar import FAMILIAR
from trainyard.jobs.options.locations import (
    change_all,
    explain_missing_part,
    explain_outputs_in_source,
    explain_shared_output,
    missing_code,
    name_output,
    replace_results,
    resolve_names,
)
from trainyard.jobs.options.requests import build_job, choose_pool
from trainyard.jobs.options.requirements import Requirements
from trainyard.jobs.pinning import pin_models, pin_results
from trainyard.jobs.planning import plan_job
from trainyard.jobs.task_run import TaskRun
from trainyard.planning import paths
from trainyard.planning.job import Preflight
from trainyard.planning.placement import Placement
from trainyard.planning.plan import Plan
from trainyard.planning.runtime import check_packages
from trainyard.planning.sizing import Memory
from trainyard.schemas.runs import run_record
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.fields import Kind
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.validation.complaints import unknown_options
from trainyard.triggers.application import POLL_SECONDS

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context


class JobOperator(HasOptions, BaseOperator):  # type: ignore[misc]
    """Run one job, described by a spec, as one Spark application.

    A subclass sets the class attributes below, and declares the options in the signature of its constructor. They are
    attributes before this class's constructor runs, which checks them: a constructor that changes options does so in
    what it passes to `super().__init__()`.

    Attributes:
        SPEC: The spec of the job.
        OPTIONS: The options beside the fields of the spec.
        REQUIREMENTS: What the job needs on the nodes.
    """

    SPEC: ClassVar[type[JobSpec]]
    OPTIONS: ClassVar[type[CommonOptions]] = CommonOptions
    REQUIREMENTS: ClassVar[Requirements] = requirements.SPARK
    HAS_RECORD = True

    conf: dict[str, str] | None
    pool: str

    ui_color = "#dfeee6"
    operator_extra_links = links.LINKS

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        fields = cls.SPEC.model_fields
        cls.OUTPUT = next((name for name, field in fields.items() if Kind.OUTPUT in field.metadata), None)

    def __new__(cls, *args: Any, **options: Any) -> JobOperator:
        """Refuse unknown options before Airflow does, with the nearest known one."""
        named = [name for name in options if not name.startswith("_")]
        if clauses := unknown_options(named, cls.PARAMETERS, FAMILIAR):
            raise TrainyardError(validation.message(cls.__name__, options.get("task_id"), clauses))
        return cast(JobOperator, super().__new__(cls, *args, **options))

    def __init__(
        self,
        *,
        conn_id: str = "trainyard_default",
        spark_conn_id: str = "spark_default",
        memory: Memory | str | None = None,
        driver_memory: Memory | str | None = None,
        grow_memory_to: str | None = None,
        placement: Placement | None = None,
        profile: str | None = None,
        preflight: Preflight | None = None,
        jars: Sequence[str] = (),
        packages: Sequence[str] = (),
        files: Sequence[str] = (),
        env_vars: dict[str, str] | None = None,
        conf: dict[str, str] | None = None,
        deferrable: bool | None = None,
        poll_interval: float = POLL_SECONDS,
        get_logs: bool = False,
        cancel_on_kill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"multiple_outputs": True} | kwargs)
        self.pool = choose_pool(self.pool, profile, conn_id)
        self._names_output = self.OUTPUT is not None and self.output_name is None
        if self._names_output and self.OUTPUT:
            setattr(self, ATTRIBUTES.get(self.OUTPUT, self.OUTPUT), name_output(self, self.is_one_of_several))
        self.memory = self.REQUIREMENTS.memory if memory is None else memory
        self.driver_memory = self.REQUIREMENTS.driver_memory if driver_memory is None else driver_memory
        self.placement = Placement() if placement is None else placement
        self.deferrable = or_default_deferrable(deferrable)
        self._lineage: lineage.Lineage | None = None
        self._check_options()

    @classmethod
    def partial(cls, **options: Any) -> Any:
        """Return the operator of mapped tasks, with the pool of its profile."""
        partial = super().partial(**options)
        owners = [owner for owner in (partial.kwargs["dag"], partial.kwargs["task_group"]) if owner]
        defaults = [owner.default_args or {} for owner in owners]
        given = ChainMap(options, options.get("default_args") or {}, *reversed(defaults))
        pool = partial.kwargs.get("pool", BaseOperator.pool)
        conn_id = given.get("conn_id", cls.PARAMETERS["conn_id"].default)
        partial.kwargs["pool"] = choose_pool(pool, given.get("profile"), conn_id)
        return partial

    def request_fields(self, options: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the job requests from Spark, as fields of the Job.

        Args:
            options: The validated options, an instance of `OPTIONS`.
            spec: The fields of the job spec, as JSON.
        """
        return {}

    def modules(self, spec: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what the job's Python imports on the nodes, beside Spark and the user's code."""
        return self.REQUIREMENTS.modules

    def locate_fields(self) -> dict[str, Any]:
        """Return the spec's fields, with URIs and versions of other tasks' results in place of the results."""
        try:
            fields = pin_results(self.SPEC, self.spec_fields())
        except TrainyardError as error:
            raise TrainyardError(f"{self.title}: {error}") from None
        return change_all(self.SPEC, fields, Kind.LOCATION, replace_results)

    def resolve_fields(self, root: str) -> dict[str, Any]:
        """Return the spec's fields, with names of things in storage resolved below the storage root `root`."""
        return change_all(self.SPEC, self.locate_fields(), Kind.LOCATION, partial(resolve_names, root))

    @property
    def title(self) -> str:
        """The operator's class and task id, as errors name it."""
        return f"{type(self).__name__} {self.task_id!r}"

    @property
    def dag_file(self) -> Path:
        """The file of the operator's DAG."""
        return Path(self.dag.fileloc)

    def render_template(self, content: Any, *args: Any, **kwargs: Any) -> Any:
        """Render the templates in a value, also in the fields of `Memory` and `Placement`. Sequences become lists."""
        render = super().render_template
        if isinstance(content, Memory | Placement):
            return replace(content, **{name: render(field, *args, **kwargs) for name, field in vars(content).items()})
        return as_lists(render(content, *args, **kwargs))

    def _check_options(self) -> None:
        """Check the options as far as they are known while the DAG is parsed, and add the output as an asset.

        Raises:
            TrainyardError: An option is not valid, or the packages of Spark do not fit together. Airflow shows it as an
                import error of the DAG.
        """
        check_packages()
        validation.check(self, self.OPTIONS)
        check_requests(self)
        fields = self.check_fields()
        self._output_is_template = validation.is_pending(self.output_name)
        if self.has_dag():
            validation.refuse(self, missing_code(self.SPEC, fields, self.dag_file))
        if output := output_asset(self.output_name, self.conn_id):
            self.outlets.append(output)

    def check_fields(self) -> dict[str, Any]:
        """Check the fields of the spec as far as they are known, and return them as `locate_fields` does.

        Raises:
            TrainyardError: An option is not valid.
        """
        validation.refuse(self, self.find_unused())
        fields = self.locate_fields()
        validation.refuse(self, validation.early_complaints(self.SPEC, fields, self.option_names()))
        return fields

    def plan(self, task_key: TaskKey, settings: Settings) -> Plan:
        """Return the plan of the application, once all templates are rendered.

        Raises:
            TrainyardError: An option is not valid, a model is missing, or the cluster can never run the application.
        """
        spec = self.build_spec(task_key, settings.storage)
        plan = self.plan_application(task_key, settings, spec.model_dump(mode="json"))
        try:
            return plan.with_job(spec=self.pin(plan.job.spec))
        except TrainyardError as error:
            raise type(error)(f"{self.title}: {error}") from None

    def pin(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a rendered spec with the versions that its models have now. Raises TrainyardError."""
        return pin_models(self.SPEC, spec)

    def build_spec(self, task_key: TaskKey, root: str) -> JobSpec:
        """Build the spec of the job, once all templates are rendered.

        Args:
            task_key: The task.
            root: The storage root, a URI.

        Raises:
            TrainyardError: An option is not valid.
        """
        self.check_fields()
        self._check_output(task_key)
        try:
            fields = {"task_key": task_key} | self.resolve_fields(root)
        except TrainyardError as error:
            raise type(error)(f"{self.title}: {error}") from None
        spec, clauses = validation.validated(self.SPEC, fields, self.option_names())
        validation.refuse(self, clauses)
        return cast(JobSpec, spec)

    def _check_output(self, task_key: TaskKey) -> None:
        """Check that a rendered output has a name, and is that of this task only. Raises TrainyardError."""
        if self.OUTPUT is None:
            return
        if self._output_is_template:
            validation.refuse(self, explain_missing_part(self.OUTPUT, self.output_name))
        mapped = getattr(self.dag.task_dict.get(self.task_id), "partial_kwargs", None) if self.has_dag() else None
        is_whole = getattr(self, "partition", None) is None
        if mapped and task_key.map_index >= 0 and (is_whole or "partition" in mapped):
            default = {} if is_whole or not self._names_output else {self.OUTPUT: self.output_name}  # has the index
            validation.refuse(self, explain_shared_output(self.OUTPUT, default | mapped))

    def plan_application(
        self, task_key: TaskKey, settings: Settings, spec: Mapping[str, Any], reads_models: bool = True
    ) -> Plan:
        """Build the plan of the operator's application.

        Args:
            task_key: The task that the application belongs to.
            settings: The settings of the connection.
            spec: The fields of the job spec, as JSON; some may still be templates.
            reads_models: Whether the storage is read for the code of the models that the job applies.

        Raises:
            TrainyardError: An option is not valid, user code is missing, or the cluster can never run the application.
        """
        options = validation.convert(self, self.OPTIONS)
        check_requests(self)
        tasks = [task for task in (self.dag.tasks if self.has_dag() else ()) if isinstance(task, JobOperator)]
        outputs = {task.task_id: task.output_name for task in tasks}
        validation.refuse(self, explain_outputs_in_source(settings.storage, spec, outputs))
        job = build_job(self, options, settings, task_key, spec)
        unshared = None if settings.shared else self.conn_id
        return plan_job(job, self.SPEC, self.dag_file, self.spark_conn_id, unshared, reads_models)

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the application to its end, or defer until it has ended. Return what its job returned."""
        with self._run.end_if_final(context):
            return self.run_plan(context, self._run.plan(context))

    def run_plan(self, context: Context, plan: Plan) -> dict[str, Any]:
        """Run the application of a plan; a subclass may find that it is not needed."""
        return self._publish_result(context, plan.job.task_key, self._run.submit(context, plan))

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the result of the application that the trigger waited for."""
        return self._publish_result(context, *self._run.collect(context, event))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume as Airflow does; if the task fails for good, also end the application."""
        with self._run.end_if_final(context):
            return super().resume_execution(next_method, next_kwargs, context)

    def on_kill(self) -> None:
        """End the application and all its processes; with `cancel_on_kill=False`, not one that runs on YARN."""
        self._run.kill()

    @property
    def _run(self) -> TaskRun:
        """The attempt in this process; Airflow copies an operator only before it runs.

        It is set in one step: a kill may come by a signal meanwhile.
        """
        attempt: TaskRun = self.__dict__.setdefault("_task_run", TaskRun(self))
        return attempt

    def read_settings(self) -> Settings:
        """Return the settings of the connection `conn_id`.

        Raises:
            TrainyardError: There is no such connection, or it is not valid.
        """
        try:
            return TrainyardHook(self.conn_id).get_conn()
        except TrainyardError as error:
            raise type(error)(f"{self.title}: conn_id: {error}") from None

    def _publish_result(self, context: Context, task_key: TaskKey, record: RunRecord) -> dict[str, Any]:
        """Publish the result to XCom and to the asset event."""
        if record.status == "failed":
            if record.traceback:
                self.log.error("%s", record.traceback)
            raise AirflowException(record.error)
        output = output_asset(self.output_name, self.conn_id)
        for asset in self.outlets:
            if isinstance(asset, Asset) and (self.OUTPUT is None or asset == output):
                event = context["outlet_events"][asset]
                event.extra = {k: v for k, v in record.output.items() if k != "uri"}
                if emits_partitions(self.get_dag()):
                    self._add_partitions(event, record)
        run_record.mark_used(task_key, record)
        self._lineage = lineage.keep(lambda: self._describe_read_and_written(record))
        return record.output

    def _add_partitions(self, event: Any, record: RunRecord) -> None:
        keys, others = select_keys(self.list_partitions(record))
        event.add_partitions(keys)
        if others:
            self.log.warning("Airflow has no events for %d partitions, such as %.50r", len(others), others[0])

    def list_partitions(self, record: RunRecord) -> list[str]:
        """Return the partitions that the task has written, if it has options of partitions."""
        return []

    def get_openlineage_facets_on_start(self) -> OperatorLineage:
        """Return the names of inputs and outputs, for the OpenLineage provider."""
        return lineage.to_openlineage(self._describe_names())

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage:
        """Return inputs and outputs with their versions, for the OpenLineage provider; their names after a failure."""
        return lineage.to_openlineage(self._lineage) if self._lineage else self.get_openlineage_facets_on_start()

    def _describe_names(self) -> lineage.Lineage:
        return lineage.describe(self._build_described_spec())

    def _describe_read_and_written(self, record: RunRecord) -> lineage.Lineage:
        """Return the lineage of the application's own spec, which has the models' versions, if there was one."""
        uri = paths.attempt_uri(record.task_key)
        spec = self.SPEC.load(uri) if storage.exists(uri) else self._build_described_spec()
        return lineage.describe(spec, record.result)

    def _build_described_spec(self) -> JobSpec:
        root = self.read_settings().storage
        return self.build_spec(TaskKey(dag_id=self.dag_id, run_id="", task_id=self.task_id, directory=root), root)
