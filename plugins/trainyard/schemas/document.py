"""Versioned JSON documents: what one stage writes and another reads."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas.secrets import REDACTED


class Part(BaseModel):
    """A frozen value inside a document; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Document(Part):
    """A value that is stored with its kind and version, so that a reader can tell what it holds."""

    KIND: ClassVar[str]
    VERSION: ClassVar[int] = 2
    INDENT: ClassVar[int | None] = 1

    def to_json(self) -> str:
        head = {"document": self.KIND, "version": self.VERSION}
        return json.dumps(head | self.model_dump(mode="json"), indent=self.INDENT)

    @classmethod
    def from_json(cls, text: str | bytes, origin: str = "the given text") -> Self:
        """Parse and validate. `origin` names the place in the error."""
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise TrainyardError(f"{origin} is not JSON ({error}); a {cls.KIND} was expected there.") from error
        kind, version = cls._head(fields, origin)
        if kind != cls.KIND:
            raise TrainyardError(f"{origin} holds a {kind}; a {cls.KIND} was expected there.")
        if version != cls.VERSION:
            remedy = "Upgrade airflow-trainyard" if version > cls.VERSION else "Write it again with this release"
            raise TrainyardError(
                f"{origin} is a {cls.KIND} of version {version}; this release of Trainyard reads version {cls.VERSION}. "
                f"{remedy}."
            )
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            raise TrainyardError(f"{origin} is not a valid {cls.KIND}: {complaints(error)}") from error

    @classmethod
    def load(cls, uri: str) -> Self:
        """Read from storage. Raises FileNotFoundError when there is none."""
        return cls.from_json(storage.read(uri), origin=uri)

    @staticmethod
    def _head(fields: Any, origin: str) -> tuple[str, int]:
        if not isinstance(fields, dict) or not isinstance(fields.get("version"), int):
            raise TrainyardError(f"{origin} is not a Trainyard document: it has no 'document' and 'version'.")
        return str(fields.pop("document", "?")), fields.pop("version")


def complaints(error: ValidationError) -> str:
    """What was refused: for each field its name, the value, and what is accepted."""
    return "; ".join(complaint(item) for item in error.errors())


def complaint(item: ErrorDetails) -> str:
    """One of the errors in a ValidationError, as a clause of a sentence."""
    field = ".".join(str(step) for step in item["loc"])
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        return f"{field} is not a known option"
    if item["type"] == REDACTED:
        return f"{field}: {message}"
    if item["type"] == "missing":
        return f"{field} is missing"
    return f"{field}={item['input']!r}: {message}" if field else message
