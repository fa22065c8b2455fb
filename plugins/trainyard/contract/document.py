"""Versioned JSON documents: what one stage writes and another reads."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from trainyard.contract import storage
from trainyard.contract.errors import TrainyardError


class Part(BaseModel):
    """A frozen value inside a document; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Document(Part):
    """A value that is stored with its kind and version, so that a reader can tell what it holds."""

    KIND: ClassVar[str]
    VERSION: ClassVar[int] = 1

    def to_json(self) -> str:
        head = {"document": self.KIND, "version": self.VERSION}
        return json.dumps(head | self.model_dump(mode="json"), indent=1)

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
        if version > cls.VERSION:
            raise TrainyardError(
                f"{origin} is a {cls.KIND} of version {version}; this Trainyard reads versions up to "
                f"{cls.VERSION}. Upgrade airflow-trainyard, or write it again with this release."
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
    """One line for each field that was refused: its name, the value, and what is accepted."""
    lines = []
    for item in error.errors():
        field = ".".join(str(step) for step in item["loc"]) or "the document"
        if item["type"] == "extra_forbidden":
            lines.append(f"{field} is not a known option")
        elif item["type"] == "missing":
            lines.append(f"{field} is missing")
        else:
            lines.append(f"{field}={item['input']!r}: {item['msg'].removeprefix('Value error, ')}")
    return "; ".join(lines)
