"""The options of every operator that are not fields of its spec."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, create_model

from trainyard.errors import TrainyardError
from trainyard.jobs.options.validation import is_pending
from trainyard.planning import placement as placements
from trainyard.planning import sizing
from trainyard.planning.job import Preflight
from trainyard.planning.placement import Placement
from trainyard.planning.sizing import Memory
from trainyard.schemas.document import Part
from trainyard.schemas.specs.fields import Fixed, SparkText, Text, refuse_secrets, refuse_string
from trainyard.schemas.validation.secrets import IN_CODE, IN_CREDENTIAL_STORE, find_secrets


def _object(kind: type, example: str) -> Any:
    """Return the type of an option that is an object of `kind`, a dataclass, whose fields are validated too.

    What a template has rendered to is converted, so that `"2"` is a number.
    """

    def unpack(value: Any) -> Any:
        if isinstance(value, kind):
            return vars(value)
        unknown = [name for name in value if name not in fields] if _is_dict(value) else []
        if unknown and unknown[0] in _GPUS:
            raise ValueError("write gpus_per_worker= or gpus_per_executor= beside placement=, as the operator has it")
        if unknown:
            raise ValueError(f"{kind.__name__} has no {unknown[0]!r}; write {', '.join(f'{name}=' for name in fields)}")
        arguments = ", ".join(f"{name}={part!r}" for name, part in value.items()) if _is_dict(value) else example
        raise ValueError(f"write {kind.__name__}({arguments})")

    fields: dict[str, Any] = {name: (hint, ...) for name, hint in get_type_hints(kind).items()}
    model = create_model(kind.__name__, **fields)
    return Annotated[model, BeforeValidator(unpack), AfterValidator(lambda value: kind(**value.model_dump()))]


def as_memory(value: Memory | str, default: Memory, where: str) -> Memory:
    """Return the memory of a container that is given in all, or by its parts. Raises TrainyardError."""
    return sizing.split(value, default, where) if isinstance(value, str) else value


def _is_dict(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(name, str) for name in value)


def _without_secrets(remedy: str) -> AfterValidator:
    """Refuse secrets in a dict, or in the URIs of a tuple, with what to do instead."""

    def check(value: Any) -> Any:
        refuse_secrets(find_secrets(value if isinstance(value, Mapping) else _number(value)), remedy)
        return value

    return AfterValidator(check)


def _number(uris: Sequence[str]) -> dict[str, str]:
    return {f"number {number}": uri for number, uri in enumerate(uris, start=1)}


def _coordinates(value: str) -> str:
    if not is_pending(value) and not _COORDINATES.fullmatch(value):
        raise ValueError("write it as 'group:artifact:version', for example 'org.postgresql:postgresql:42.7.4'")
    return value


_GPUS = ("gpus_per_worker", "gpus_per_executor")
"""The options of operators that profiles have beside the fields of a Placement."""
_COORDINATES = re.compile(r"[^\s:,]+(:[^\s:,]+){2}")
MemoryOption = Annotated[str, Field(min_length=1)] | _object(Memory, "heap='4g'")
PlacementOption = _object(Placement, "queue='default'")
_as_placement: Callable[[Any], Placement] = TypeAdapter(PlacementOption).validate_python
Name = Annotated[str, Field(min_length=1)]
Jars = Annotated[tuple[Name, ...], refuse_string("hdfs:///jars/driver.jar"), _without_secrets(IN_CREDENTIAL_STORE)]
Packages = Annotated[
    tuple[Annotated[str, AfterValidator(_coordinates)], ...], refuse_string("org.postgresql:postgresql:42.7.4")
]
Files = Annotated[tuple[Name, ...], refuse_string("hdfs:///conf/labels.csv"), _without_secrets(IN_CREDENTIAL_STORE)]


class ConnectionOptions(Part):
    """The options of operators that read the storage, and run no application."""

    conn_id: Name
    """The connection of type `trainyard`, with the storage."""


class WaitOptions(Part):
    """The options of sensors that can wait in the triggerer."""

    deferrable: Fixed[bool]
    """Whether the sensor leaves its worker slot and waits in the triggerer. By default Airflow's setting
    `default_deferrable` in section `[operators]`."""


class CommonOptions(ConnectionOptions):
    """The options of operators that run an application, beside the fields of the spec."""

    spark_conn_id: Name
    """The connection of type `spark`, with the Spark master."""
    memory: MemoryOption  # type: ignore[valid-type]
    """The memory of each executor: in all, such as "8g", or its parts as `Memory`."""
    driver_memory: MemoryOption  # type: ignore[valid-type]
    """The memory of the driver, in the same forms."""
    grow_memory_to: Name | None
    """The largest container that a retry may ask for after a memory kill, for example "8g". By default a retry requests
    what the first attempt had."""
    preflight: Preflight | None
    """The check against a YARN cluster before the application is submitted. `strict`: the task fails with what YARN
    would refuse. `warn`: that is logged. `off`: no check. By default that of the connection `conn_id`, else of
    Airflow's setting `preflight` in section `[trainyard]`, else `strict`."""
    placement: PlacementOption  # type: ignore[valid-type]
    """The queue, the node labels, and how workers share nodes and GPUs."""
    profile: Name | None
    """The name of a profile in the extra of the connection `conn_id`: queue, node labels, GPUs, memory, environment and
    Spark configuration, which an option of the task overrides. On a local master it need not exist."""
    jars: Jars
    """Jars for driver and executors: paths, or URIs that every node reads."""
    packages: Packages
    """Maven coordinates (`group:artifact:version`) of jars that spark-submit downloads."""
    files: Files
    """Files for the working directory of each container."""
    env_vars: Annotated[dict[str, Text], _without_secrets(IN_CODE)] | None
    """Environment variables of driver and executors. Secrets are refused, because YARN shows them."""
    deferrable: Fixed[bool]
    """Whether the task leaves its worker slot and waits in the triggerer while its application runs on YARN. By default
    Airflow's setting `default_deferrable` in section `[operators]`."""
    poll_interval: Fixed[Annotated[float, Field(gt=0, le=300)]]
    """The seconds between two requests for the state of the application on YARN, 300 at most; fewer in the beginning: a
    twentieth of the time waited so far, and at least 1."""
    get_logs: Fixed[bool]
    """Whether the task log has the driver's output while the application runs on YARN."""
    cancel_on_kill: Fixed[bool]
    """Whether the application on YARN ends when its task is cleared, marked or timed out while it waits. False leaves
    it to the next attempt; the last one ends it."""
    conf: Annotated[dict[str, SparkText], _without_secrets(IN_CREDENTIAL_STORE)] | None
    """Spark configuration. It overrides what Trainyard sets."""


def check_requests(operator: Any) -> None:
    """Check the sizes and the placement of an operator, except those that are known when it runs.

    Args:
        operator: An operator with the attributes of `CommonOptions`, and a `title`.

    Raises:
        TrainyardError: A size or the placement is not valid.
    """
    container, default = None, operator.REQUIREMENTS
    if not is_pending(operator.memory):
        container = as_memory(operator.memory, default.memory, f"{operator.title}: memory")
        sizing.size(container, operator.title, "memory")
    if not is_pending(operator.driver_memory):
        memory = as_memory(operator.driver_memory, default.driver_memory, f"{operator.title}: driver_memory")
        sizing.driver_size(memory, operator.title)
    if operator.grow_memory_to is not None and not is_pending(operator.grow_memory_to):
        check_growth(container, operator.grow_memory_to, operator.title)
    if not is_pending(operator.placement):
        placements.check(_as_placement(operator.placement), operator.title)


def check_growth(memory: Memory | None, grow_memory_to: str | None, operator: str) -> None:
    """Check that a limit is a size, and not less than the container of the first attempt.

    Args:
        memory: The memory of the container; None if it is not known yet.
        grow_memory_to: The limit, if there is one.
        operator: The operator, for the message.

    Raises:
        TrainyardError: It is not.
    """
    if grow_memory_to is None:
        return
    where = f"{operator}: grow_memory_to"
    limit = sizing.megabytes(grow_memory_to, where)
    container = sizing.size(memory, operator, "memory").needed if memory else 0
    if limit < container:
        raise TrainyardError(
            f"{where}={grow_memory_to!r} is less than the container of the first attempt, {container} MB; "
            "write a larger size, or remove it."
        )
