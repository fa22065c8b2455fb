"""The fitted state: what an export learns from the training rows alone, and each use of the model applies again.

DATASET/fitted/SHA256.json            the state of the versions whose manifest has this checksum
MODEL/CONTENT_HASH/fitted_state.json  a copy of that of the dataset on which the model was trained
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import PrivateAttr

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.schemas.document import Document, Part
from trainyard.schemas.types import Digest

FILE = "fitted_state.json"
STATE = "state"
"""The argument of `prepare` that gets what the user's `fit` returned."""
UNSEEN = "unseen"
"""The name of index 0 of a category."""


class Vocabulary(Part):
    """The values of a column in the order of their indices.

    Those of a category count from 1, and 0 is null and each value that the vocabulary does not have. Those of a label
    are the classes from 0 on, and the label has no other values.
    """

    type: Literal["string", "integer", "boolean"]
    """The type of the column before values became indices."""
    values: tuple[str, ...]
    """The values, as texts."""
    is_label: bool = False
    """Whether the column is the label."""
    is_list: bool = False
    """Whether a row has an array of values, such as the words of a text."""

    @property
    def first(self) -> int:
        """The index of the first value."""
        return 0 if self.is_label else 1

    @property
    def size(self) -> int:
        """The number of indices: of an embedding's rows, or of classes."""
        return self.first + len(self.values)

    @cached_property
    def sha256(self) -> str:
        """The checksum, by which a column of indices names its vocabulary."""
        content = [self.type, self.values, self.is_label, *(["list"] if self.is_list else [])]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @property
    def column_type(self) -> str:
        """The type of the column before values became indices, as messages have it."""
        return f"array<{self.type}>" if self.is_list else self.type

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each index; a value that looks like that of index 0 is in quotes."""
        if self.is_label:
            return self.values
        return UNSEEN, *(json.dumps(v, ensure_ascii=False) if v == UNSEEN or v[:1] == '"' else v for v in self.values)

    def encode(self, column: str, values: Sequence[Any]) -> list[int]:
        """Return the indices of values, as an export writes them; None and NaN, as pandas writes it, are null.

        Args:
            column: The name of the column, for the error.
            values: The values of rows; of a column of arrays, those of one row.

        Raises:
            TrainyardError: A label has a value that is no class.
        """
        indices = [None if is_null(value) else self._indices.get(self._describe(value)) for value in values]
        if self.is_label and None in indices:
            raise TrainyardError(describe_unknown_class(column, values[indices.index(None)]))
        return [index or 0 for index in indices]

    def _describe(self, value: Any) -> str:
        """Return the text of a value, as the export writes it; pandas has a column of integers with nulls as floats."""
        if self.type == "boolean":
            return str(bool(value) if value in (0, 1) else value).lower()
        if self.type == "integer" and isinstance(value, float) and value.is_integer():
            return str(int(value))
        return str(value)

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {value: index for index, value in enumerate(self.values, self.first)}


def is_null(value: Any) -> bool:
    """Return whether a value is None, NaN, or the NA of pandas, which compares with nothing."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


class FittedState(Document):
    """What was learned from the training rows of an export."""

    KIND: ClassVar[str] = "fitted state"
    MAX_BYTES: ClassVar[int] = 64 << 20
    INDENT: ClassVar[int | None] = None

    options: dict[str, Any]
    """The options that it was fitted with: `categories`, `label`, `fit` and `fit_params`."""
    vocabularies: dict[str, Vocabulary] = {}
    """The values of `categories` and of `label`, by column."""
    state: Any = None
    """What the user's `fit` returned."""
    _stored: str | None = PrivateAttr(None)

    def to_json(self) -> str:
        """Return the document as JSON: one that was read as it is stored, so that its checksum stays what it was."""
        return self._stored or super().to_json()

    @property
    def reference(self) -> FittedReference:
        """What the manifest and the model have of it."""
        return FittedReference(
            sha256=hashlib.sha256(self.to_json().encode()).hexdigest(),
            labels=tuple(name for name, values in self.vocabularies.items() if values.is_label),
            sizes={name: vocabulary.size for name, vocabulary in self.vocabularies.items()},
        )  # fmt: skip


class FittedReference(Part):
    """A fitted state, by its checksum, and what a network is built by."""

    sha256: Digest
    """The sha256 of the document."""
    sizes: dict[str, int] = {}
    """The number of indices of each column of categories, and the number of classes of each label."""
    labels: tuple[str, ...] = ()
    """The labels whose classes have names."""

    @property
    def path(self) -> str:
        """The path of the document, relative to its dataset."""
        return f"fitted/{self.sha256}.json"


def save(dataset: str, state: FittedState) -> None:
    """Store the state of a dataset, of which no version refers to it yet."""
    storage.replace(uris.join(dataset, state.reference.path), state.to_json().encode())


def read(uri: str, reference: FittedReference) -> FittedState:
    """Read a state.

    Args:
        uri: The URI of the document.
        reference: What refers to it.

    Raises:
        TrainyardError: It is missing, or is another one.
    """
    text = read_bytes(uri, reference)
    state = FittedState.from_json(text, uri)
    state._stored = text.decode()
    return state


def read_bytes(uri: str, reference: FittedReference) -> bytes:
    """Read the document of a state as it is stored, and compare its checksum; see `read`."""
    try:
        text = storage.read(uri, FittedState.MAX_BYTES)
    except FileNotFoundError:
        raise TrainyardError(
            f"{uri} is missing: the categories and the state of fit= are there. Export again."
        ) from None
    if hashlib.sha256(text).hexdigest() != reference.sha256:
        raise TrainyardError(f"{uri} was changed: its sha256 is not {reference.sha256}. Export, and train again.")
    return text


def describe_unknown_class(column: str, value: Any) -> str:
    """Return the error of a label that is no class."""
    return f"the label {column!r} has the value {value!r}{UNKNOWN_CLASS}"


UNKNOWN_CLASS = (
    ", which no row of the split 'train' has. Correct or drop such rows in prepare; write stratify= so that each class "
    "is in the split 'train'; or export with refit=True where there is a new class."
)
