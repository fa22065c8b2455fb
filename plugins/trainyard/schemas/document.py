"""Versioned JSON documents: what one stage writes and another reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from trainyard.errors import TrainyardError, noted
from trainyard.files import storage, uris
from trainyard.schemas import texts
from trainyard.schemas.validation.complaints import complaints

if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)

D = TypeVar("D", bound="Document")
CACHED_DOCUMENTS = 1 << 14
"""The documents that `Document.load_all` keeps in memory, so that a page that is shown again reads only new ones."""


def name_non_finite(value: Any) -> Any:
    """Return a value of JSON with texts, such as "NaN", in place of floats that JSON does not have."""
    if isinstance(value, Mapping):
        return {key: name_non_finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [name_non_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


class _PartType(ModelMetaclass):
    __doc__ = texts.complete_doc("Attributes:", texts.read_own)


class Part(BaseModel, metaclass=_PartType):
    """A frozen value inside a document. Unknown fields are refused.

    The text of a field stands below it. The docstring has it in the section "Attributes".
    """

    model_config = ConfigDict(frozen=True, extra="forbid")


class Document(Part):
    """A value that is stored with its kind and version."""

    KIND: ClassVar[str]
    """The kind of document, stored as `document`."""
    VERSION: ClassVar[int] = 3
    """The version of the schema, stored as `version`. A document of any other version is refused; `tests/stored` has
    those that must stay readable."""
    INDENT: ClassVar[int | None] = 1
    """The indentation of the JSON."""
    MAX_BYTES: ClassVar[int] = 16 << 20
    """The size of the JSON that is read and written at most: one document of somebody else must not fill the memory of
    a reader, such as the API server."""

    def to_json(self) -> str:
        """Return the document as JSON. Raises TrainyardError if it would be too large to be read.

        A float that JSON does not have is a text, such as "NaN", which pydantic reads as a float; it is null where any
        type is allowed.
        """
        head = {"document": self.KIND, "version": self.VERSION}
        fields = head | self.model_dump(mode="json")
        try:
            text = json.dumps(fields, indent=self.INDENT, allow_nan=False)
        except ValueError:
            text = json.dumps(name_non_finite(fields), indent=self.INDENT)
        if len(text) > self.MAX_BYTES:
            raise TrainyardError(
                f"a {self.KIND} of {len(text) >> 20} MiB cannot be stored: those of more than {self.MAX_BYTES >> 20} "
                "MiB are not read."
            )
        return text

    @classmethod
    def from_json(cls, text: str | bytes, origin: str = "the text") -> Self:
        """Parse and validate a document.

        Args:
            text: The JSON.
            origin: Where the text comes from, for error messages.

        Raises:
            TrainyardError: The text is not JSON, or a document of another kind or version, or not valid.
        """
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TrainyardError(f"{origin} is not JSON ({error}); a {cls.KIND} was expected there.") from error
        kind, version = cls._pop_head(fields, origin)
        if version != cls.VERSION:
            remedy = "Upgrade airflow-trainyard" if version > cls.VERSION else "Remove it, and write it again"
            raise TrainyardError(
                f"{origin} is a {kind} of version {version}; this release of Trainyard reads version "
                f"{cls.VERSION}. {remedy}."
            )
        if kind != cls.KIND:
            raise TrainyardError(f"{origin} is a {kind}; a {cls.KIND} was expected there.")
        try:
            return cls.model_validate(fields)
        except ValidationError as error:
            has_unknown = any(one["type"] == "extra_forbidden" for one in error.errors())
            remedy = " A newer release may have written it: upgrade airflow-trainyard." if has_unknown else ""
            raise TrainyardError(f"{origin} is not a valid {cls.KIND}: {complaints(error)}{remedy}") from error

    @classmethod
    def load(cls, uri: str) -> Self:
        """Read the document at `uri`. Raises FileNotFoundError, and TrainyardError as `from_json`.

        What it says of its own place is replaced by where it lies: whoever may write one document leads readers to no
        other place with it, and a storage may be moved.
        """
        return cls.from_json(storage.read(uri, cls.MAX_BYTES), origin=uri).place(uri)

    def place(self, uri: str) -> Self:
        """Return the document as one that lies at `uri`. Raises TrainyardError if it cannot be one that does."""
        return self

    @classmethod
    def load_all(cls, directory: str, unreadable: dict[str, str] | None = None) -> list[Self]:
        """Read the documents of a directory, in the order of their names. Hidden files are left out.

        Args:
            directory: The URI of the directory.
            unreadable: Where to note why a document cannot be read; None raises the error.
        """
        documents: list[Self] = []
        for name, size, modified in storage.find_files(directory):
            if not name.startswith("."):
                with noted(unreadable, f"{directory.rpartition('/')[2]}/{name}"):
                    storage.check_size(uri := uris.join(directory, name), size, cls.MAX_BYTES)
                    documents.append(cls.load_unchanged(uri, size, modified))
        return documents

    @classmethod
    def load_unchanged(cls, uri: str, size: int, modified: float | None) -> Self:
        """Read a document, but not again one of the size and time that it had the last time.

        Args:
            uri: The document.
            size: Its size in bytes.
            modified: When it was written, in seconds since the epoch; None if that is not known.
        """
        return cls.load(uri) if modified is None else _load_once(cls, uri, size, modified)

    @staticmethod
    def _pop_head(fields: Any, origin: str) -> tuple[str, int]:
        if not isinstance(fields, dict) or not isinstance(fields.get("version"), int):
            raise TrainyardError(f"{origin} is not a Trainyard document: it has no 'document' and 'version'.")
        return str(fields.pop("document", "?")), fields.pop("version")


@lru_cache(CACHED_DOCUMENTS)
def _load_once(kind: type[D], uri: str, size: int, modified: float) -> D:
    return kind.load(uri)
