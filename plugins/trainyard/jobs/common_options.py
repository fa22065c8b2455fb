"""The options of every operator that are not fields of its spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, create_model

from trainyard.planning.job import Preflight
from trainyard.planning.placement import Placement
from trainyard.planning.sizing import Memory
from trainyard.schemas.document import Part
from trainyard.schemas.secrets import IN_CREDENTIAL_STORE, find_secrets
from trainyard.schemas.specs.fields import refuse_secrets


def _object(kind: type, example: str) -> Any:
    """Return the type of an option that is an object of `kind`, a dataclass, whose fields are validated too."""

    def unpack(value: Any) -> Any:
        if isinstance(value, kind):
            return vars(value)
        arguments = ", ".join(f"{name}={part!r}" for name, part in value.items()) if _is_dict(value) else example
        raise ValueError(f"write {kind.__name__}({arguments})")

    fields: dict[str, Any] = {name: (hint, ...) for name, hint in get_type_hints(kind).items()}
    return Annotated[create_model(kind.__name__, __config__=ConfigDict(strict=True), **fields), BeforeValidator(unpack)]


def _is_dict(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(isinstance(name, str) for name in value)


def _conf(value: dict[str, str]) -> dict[str, str]:
    refuse_secrets(find_secrets(value), IN_CREDENTIAL_STORE)
    return value


MemoryOption = _object(Memory, "heap='4g'")
PlacementOption = _object(Placement, "queue='default'")
Name = Annotated[str, Field(min_length=1)]


class ConnectionOptions(Part):
    """The options of operators that read the storage, and run no application."""

    conn_id: Name


class CommonOptions(ConnectionOptions):
    """The options of operators that run an application, beside the fields of the spec."""

    spark_conn_id: Name
    memory: MemoryOption  # type: ignore[valid-type]
    driver_memory: MemoryOption  # type: ignore[valid-type]
    grow_memory_to: Name | None
    preflight: Preflight | None
    placement: PlacementOption  # type: ignore[valid-type]
    conf: Annotated[dict[str, str], AfterValidator(_conf)] | None
