"""What all operators have in common: options in, one application run, a small result out."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow.sdk import Asset, BaseOperator
from airflow.sdk.configuration import conf as airflow_conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferralTimeout
from airflow.triggers.base import BaseTrigger

from trainyard import code, report, sizing
from trainyard import placement as placements
from trainyard.backends.base import Backend, DeferredBackend, backend_for
from trainyard.connections import Settings, TrainyardHook, airflow_home, spark_connection
from trainyard.contract import bundle, metrics, record, storage
from trainyard.contract.errors import TrainyardError
from trainyard.contract.record import RunRecord
from trainyard.contract.spec import JobSpec, Place
from trainyard.links import LINKS, ReportLink, report_page
from trainyard.operators import validation
from trainyard.placement import Placement
from trainyard.plan import Job, Plan, Runtime, make, run_directory
from trainyard.runtime import spark_environment
from trainyard.sizing import Memory

if TYPE_CHECKING:
    from airflow.sdk import Context

T = TypeVar("T")
COMMON_FIELDS = ("conf", "conn_id", "spark_conn_id")


class JobOperator(BaseOperator):  # type: ignore[misc]
    """Runs one job, described by a spec, as one Spark application.

    A subclass names its spec, the option that says where its product goes, and which options are
    places in storage; `_fields` maps its options to the spec's fields.

    :param conn_id: connection of type `trainyard`, which says where things are stored
    :param spark_conn_id: connection of type `spark`, which says where applications run
    :param memory: what each executor needs: a `Memory`; a default that fits small jobs otherwise
    :param driver_memory: what the driver needs
    :param grow_memory_to: largest container that a retry may ask for after a memory kill, such as "8g"; by
        default a retry asks for what the first try had
    :param placement: queue, node labels and GPUs: a `Placement`
    :param conf: Spark configuration on top of what Trainyard sets; yours wins
    """

    SPEC: ClassVar[type[JobSpec]]
    PRODUCT: ClassVar[str | None] = None
    PLACES: ClassVar[tuple[str, ...]] = ()
    MODULES: ClassVar[tuple[str, ...]] = ("fsspec", "numpy", "pandas", "pyarrow", "pydantic")
    MEMORY: ClassVar[Memory] = Memory(heap="1g", native="512m")
    DRIVER_MEMORY: ClassVar[Memory] = Memory(heap="1g", native="512m")

    ui_color = "#dfeee6"
    template_fields_renderers: ClassVar[dict[str, str]] = {"conf": "json"}
    operator_extra_links = LINKS

    def __new__(cls, *args: Any, **options: Any) -> JobOperator:
        given = [name for name in options if not name.startswith("_")]
        if clauses := validation.unknown_options(given, _options(cls)):
            raise TrainyardError(_message(cls.__name__, options.get("task_id"), clauses))
        return super().__new__(cls)  # type: ignore[no-any-return]

    def __init__(
        self,
        *,
        conn_id: str = "trainyard_default",
        spark_conn_id: str = "spark_default",
        memory: Memory | None = None,
        driver_memory: Memory | None = None,
        grow_memory_to: str | None = None,
        placement: Placement | None = None,
        conf: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.memory = memory or self.MEMORY
        self.driver_memory = driver_memory or self.DRIVER_MEMORY
        self.grow_memory_to = grow_memory_to
        self.placement = placement or Placement()
        self.conn_id = conn_id
        self.spark_conn_id = spark_conn_id
        self.conf = conf
        self._backend: Backend | None = None

    @abstractmethod
    def _fields(self) -> dict[str, Any]:
        """The options as fields of the spec."""

    def _modules(self, spec: Mapping[str, Any]) -> tuple[str, ...]:
        """What the job's Python imports on the nodes, beside Spark's and the user's own."""
        return self.MODULES

    @property
    def product(self) -> Any:
        """Where the product goes, as it was given; None when there is none."""
        return self._fields()[self.PRODUCT] if self.PRODUCT else None

    @property
    def title(self) -> str:
        return f"{type(self).__name__} {self.task_id!r}"

    def refuse_bad_input(self) -> None:
        """Called by each constructor last. Raises TrainyardError, which Airflow shows as an import error."""
        sizing.size(self.memory, self.title, "memory")
        sizing.size(self.driver_memory, self.title, "driver_memory")
        if self.grow_memory_to is not None:
            sizing.megabytes(self.grow_memory_to, f"{self.title}: grow_memory_to")
        placements.check(self.placement, self.title)
        fields = self._fields()
        clauses = validation.early_complaints(self.SPEC, fields)
        if not clauses and self.has_dag():
            clauses = self._missing_code(fields)
        if clauses:
            raise TrainyardError(_message(type(self).__name__, self.task_id, clauses))
        if isinstance(self.product, str) and not validation.is_pending(self.product):
            self.outlets.append(Asset(self.product))

    def plan(self, place: Place, settings: Settings) -> Plan:
        """The application that this task would be, its templates being rendered."""
        spec, clauses = validation.validated(self.SPEC, {"place": place} | self.located(settings.storage))
        if spec is None:
            raise TrainyardError(_message(type(self).__name__, self.task_id, clauses))
        return self.plan_for(place, settings.storage, spec.model_dump(mode="json"))

    def plan_for(self, place: Place, root: str, spec: Mapping[str, Any]) -> Plan:
        """The application for the fields of a spec, in which templates may still stand."""
        paths = [*_import_paths(spec).values(), *_trained_with(spec)]
        archive = code.build(paths, self._dag_file(), airflow_home() / "trainyard-code")
        job = Job(
            operator=self.title, place=place, storage=root, spec=spec,
            memory=self.memory, driver_memory=self.driver_memory, grow_memory_to=self.grow_memory_to,
            placement=self.placement, modules=self._modules(spec), workers=spec.get("workers"),
            least_workers=spec.get("min_workers"), conf=self.conf or {},
        )  # fmt: skip
        here = Runtime(str(code.DRIVER), (str(archive),), spark_environment())
        return make(job, spark_connection(self.spark_conn_id), here)

    def located(self, root: str) -> dict[str, Any]:
        """The spec's fields, with names of things in storage resolved below `root`."""
        fields = self._fields()
        exported = fields.get("batches")
        if isinstance(exported, Mapping) and fields.get("batches_version") is None:
            fields["batches_version"] = exported.get("version")
        for name in self.PLACES:
            fields[name] = uri_of(root, fields[name])
        source = fields.get("source")
        if isinstance(source, Mapping) and isinstance(source.get("path"), str):
            fields["source"] = {**source, "path": storage.resolve(root, source["path"])}
        return fields

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the application to its end, or defer until it has ended; what its job returned is the result."""
        return self._submitted(context, self._planned(context))

    def _submitted(self, context: Context, planned: Plan) -> dict[str, Any]:
        place, backend = planned.place, self._backend_for(planned)
        self._push_links(context, place)
        spec = self.SPEC.model_validate(planned.spec)
        storage.replace(planned.spec_uri, spec.to_json().encode())
        return self._waited_for(context, place, backend, partial(backend.run, self.log.info))

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """The application that was waited for has ended: its result, or why there is none."""
        planned = self._planned(context)
        backend = self._backend_for(planned)
        assert isinstance(backend, DeferredBackend)
        return self._waited_for(context, planned.place, backend, partial(backend.collect, event, self.log.info))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """As Airflow's own; the application of a task that waited longer than `execution_timeout` ends with it."""
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self._backend_for(self._planned(context)).kill()
            raise

    def _waited_for(
        self, context: Context, place: Place, backend: Backend, step: Callable[[], RunRecord | BaseTrigger]
    ) -> dict[str, Any]:
        """What the job returned, if `step` has its record; else defer until there may be one."""
        try:
            found = self._outcome(place, step)
        finally:
            self._push_pages(context, backend)
        if isinstance(found, BaseTrigger):
            if _ended_meanwhile(context["ti"], place):
                backend.kill()
                raise AirflowFailException("The task was ended while it was submitted; its application is ended too.")
            self.defer(trigger=found, method_name="resume", timeout=self.execution_timeout)
        return self._result(context, place, found)

    def on_kill(self) -> None:
        """End the application, with every process of it."""
        if self._backend:
            self._backend.kill()

    def _planned(self, context: Context) -> Plan:
        try:
            settings = TrainyardHook(self.conn_id).get_conn()
            return self.plan(place_of(context["ti"], settings.storage), settings)
        except TrainyardError as error:
            raise AirflowFailException(str(error)) from None

    def _backend_for(self, planned: Plan) -> Backend:
        try:
            self._backend = backend_for(planned)
        except TrainyardError as error:
            raise AirflowFailException(str(error)) from None
        return self._backend

    def _outcome(self, place: Place, step: Callable[[], T]) -> T:
        try:
            return step()
        except TrainyardError as error:
            raise AirflowException(str(error)) from None
        finally:
            self._report(place.directory)

    def _push_links(self, context: Context, place: Place) -> None:
        """The address of the report, and no other yet: for a link that nobody pushed Airflow logs an error."""
        page = report_page(airflow_conf.get("api", "base_url", fallback=""), self.conn_id, place.dag_id, place.run_id)
        for link in LINKS:
            context["ti"].xcom_push(key=link.KEY, value=page if link.KEY == ReportLink.KEY else "")

    def _push_pages(self, context: Context, backend: Backend) -> None:
        for key, address in (backend.pages if isinstance(backend, DeferredBackend) else {}).items():
            context["ti"].xcom_push(key=key, value=address)

    def _result(self, context: Context, place: Place, found: RunRecord) -> dict[str, Any]:
        """What the job returned, told to whom it concerns."""
        if found.status == "failed":
            raise AirflowException(found.error)
        for asset in self.outlets:
            if isinstance(asset, Asset) and (self.PRODUCT is None or asset.name == self.product):
                context["outlet_events"][asset].extra = {k: v for k, v in found.output.items() if k != "uri"}
        record.take(place, found)
        return found.output

    def _report(self, directory: str) -> None:
        """Bring the run's report up to date. A stage does not fail for want of its report."""
        try:
            report.render(directory)
        except Exception:
            self.log.exception("The report of %s could not be written", directory)

    def _missing_code(self, fields: Mapping[str, Any]) -> list[str]:
        for option, path in _import_paths(fields).items():
            try:
                code.user_package(path, self._dag_file())
            except TrainyardError as error:
                return [f"{option}={str(error).removesuffix('.')}"]
        return []

    def _dag_file(self) -> Path:
        return Path(self.dag.fileloc)


def _options(operator: type[JobOperator]) -> set[str]:
    constructors = [
        vars(base)["__init__"] for base in operator.__mro__ if "__init__" in vars(base) and base is not object
    ]
    names = {name for constructor in constructors for name in inspect.signature(constructor).parameters}
    return names - {"self", "args", "kwargs"}


def _message(operator: str, task_id: Any, clauses: Sequence[str]) -> str:
    return f"{operator} {task_id!r}: {'; '.join(clauses)}."


def _import_paths(fields: Mapping[str, Any]) -> dict[str, str]:
    """The options that name user code, as far as it is known."""
    paths = {option: fields.get(option) for option in ("prepare", "recipe", "script", "postprocess")}
    named = fields.get("metrics")
    own = [name for name in named if isinstance(name, str)] if isinstance(named, Sequence) else []
    paths |= {f"metrics.{number}": name for number, name in enumerate(own) if metrics.is_custom(name)}
    return {o: path for o, path in paths.items() if isinstance(path, str) and not validation.is_pending(path)}


def _trained_with(spec: Mapping[str, Any]) -> list[str]:
    """The recipes of the models that a job applies: loading them imports those."""
    models = [spec["model"], *spec.get("against", ())] if "model" in spec and "recipe" not in spec else []
    known = [model for model in models if not validation.is_pending(model)]
    return [bundle.current(model).recipe for model in known if bundle.exists(model)]


def uri_of(root: str, value: Any) -> Any:
    """The URI of `value`: a name below `root`, a URI, or what a task returned that has a `uri`; or a list of them."""
    if isinstance(value, list | tuple):
        return [uri_of(root, item) for item in value]
    uri = value.get("uri") if isinstance(value, Mapping) else value
    return storage.resolve(root, uri) if isinstance(uri, str) else uri


def _ended_meanwhile(ti: Any, place: Place) -> bool:
    """Whether the task at `place` was marked or cleared while its process, this one, worked: it may not defer."""
    states = ti.get_task_states(
        dag_id=place.dag_id, run_ids=[place.run_id], task_ids=[place.task_id], map_index=place.map_index
    )
    return "running" not in states.get(place.run_id, {}).values()


def place_of(ti: Any, root: str) -> Place:
    """Which try of which task a task instance is; `root` is the URI below which things are stored."""
    return Place(
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        task_id=ti.task_id,
        map_index=-1 if ti.map_index is None else ti.map_index,
        try_number=ti.try_number,
        first_try=max(1, ti.max_tries - (ti.task.retries or 0) + 1),  # clearing raises max_tries, as Airflow counts too
        directory=run_directory(root, ti.dag_id, ti.run_id),
    )
