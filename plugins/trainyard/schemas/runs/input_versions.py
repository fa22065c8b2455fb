"""What a training reads, in which versions, so that an attempt that resumes reads the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pydantic import NonNegativeInt, PositiveInt

from trainyard.schemas.document import Document
from trainyard.schemas.references import Reference, refer_to_model


class InputVersions(Document):
    """The versions of the datasets and models that a training reads."""

    KIND: ClassVar[str] = "input versions"
    MAX_BYTES: ClassVar[int] = 1 << 20

    datasets: dict[str, PositiveInt]
    """The versions of the datasets, by their URIs."""
    dataset_since: NonNegativeInt | str | None = None
    """The version, or the model `MODEL@VERSION` that was trained on it, after which rows were added."""
    start_from: str | None = None
    """The model whose weights it began with, `MODEL@VERSION`."""

    def references(self) -> Iterator[Reference]:
        """Yield the datasets and models."""
        yield from (Reference(uri, number) for uri, number in self.datasets.items())
        yield from (refer_to_model(name) for name in (self.start_from, self.dataset_since) if isinstance(name, str))
