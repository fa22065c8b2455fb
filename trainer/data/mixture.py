"""Read several datasets as one: their blocks end to end, each dataset with a share of the rows of an epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import DatasetManifest, Statistics
from trainyard.trainer.data.reading.blocks import Block
from trainyard.trainer.data.reading.cache import ShardCache
from trainyard.trainer.data.reading.split_reader import SplitReader


@dataclass(frozen=True)
class Portion:
    """A dataset that is mixed into another.

    Attributes:
        uri: The dataset.
        share: The fraction of the rows of an epoch that come from it, above 0 and below 1.
        manifest: The version of it that is read.
    """

    uri: str
    share: float
    manifest: DatasetManifest

    @classmethod
    def of(cls, uri: str, share: float) -> Portion:
        """Return a portion of the newest version of the dataset at `uri`, or of the one that it ends with (`@12`).

        Raises:
            TrainyardError: There is no such dataset or version.
        """
        dataset, manifest = manifests.find(uri)
        return cls(dataset, share, manifest)


class Mixture:
    """The blocks of several datasets, with the interface of a SplitReader.

    An epoch has as many rows as all datasets together; a fraction `shares[i]` of them comes from `parts[i]`.

    Raises:
        TrainyardError: The datasets have different columns.
    """

    def __init__(self, parts: Sequence[SplitReader], shares: Sequence[float]) -> None:
        for part in parts[1:]:
            _check_same_columns(parts[0], part)
        self.parts, self.shares = tuple(parts), tuple(shares)
        self.name = parts[0].name
        self.columns = parts[0].columns
        self.blocks = tuple(rows for part in parts for rows in part.blocks)
        self.rows = sum(self.blocks)
        self.row_bytes = max(part.row_bytes for part in parts)
        self._firsts = list(accumulate((len(part.blocks) for part in parts[:-1]), initial=0))

    @property
    def groups(self) -> tuple[int, ...]:
        """The number of blocks of each dataset."""
        return tuple(len(part.blocks) for part in self.parts)

    def find(self, block: int) -> tuple[int, int]:
        """Return the index of the part that a block belongs to, and the number of the block there."""
        part = bisect_right(self._firsts, block) - 1
        return part, block - self._firsts[part]

    def block(self, block: int) -> Block:
        """Return the columns of a block."""
        part, number = self.find(block)
        return self.parts[part].block(number)

    def locate(self, block: int, row: int) -> str:
        """Return the position of a row of a block in words."""
        part, number = self.find(block)
        return self.parts[part].locate(number, row)

    @property
    def fetched_bytes(self) -> int:
        """The size of the blocks in memory that were fetched by themselves, in bytes."""
        return sum(part.fetched_bytes for part in self.parts)

    def prefetch(self, blocks: Iterable[int]) -> None:
        """Start to read `blocks`, which will be needed soon."""
        for part, numbers in self._group_by_part(blocks):
            part.prefetch(numbers)

    def release(self, blocks: Iterable[int]) -> None:
        """Drop fetched `blocks` from memory."""
        for part, numbers in self._group_by_part(blocks):
            part.release(numbers)

    def _group_by_part(self, blocks: Iterable[int]) -> Iterator[tuple[SplitReader, list[int]]]:
        numbers_by_part = defaultdict(list)
        for part, number in map(self.find, blocks):
            numbers_by_part[part].append(number)
        return ((self.parts[part], numbers) for part, numbers in numbers_by_part.items())


def build_reader(
    uri: str,
    manifest: DatasetManifest,
    split: str,
    columns: tuple[str, ...],
    mix: Sequence[Portion] = (),
    cache: ShardCache | None = None,
) -> SplitReader | Mixture:
    """Return a reader of a split of the dataset at `uri`, and of the same split of the datasets mixed into it.

    Raises:
        TrainyardError: A column or split is missing, the columns of the datasets differ, or the shares are invalid.
    """
    for portion in mix:
        _check_same_values(uri, manifest, portion, columns)
    datasets = [(uri, manifest), *((portion.uri, portion.manifest) for portion in mix)]
    parts = [SplitReader(uri, manifest, split, columns, cache=cache) for uri, manifest in datasets]
    return Mixture(parts, compute_shares(mix)) if mix else parts[0]


def compute_shares(portions: Sequence[Portion]) -> tuple[float, ...]:
    """Return the share of the main dataset, which has the rest, followed by those of the `portions`.

    Raises:
        TrainyardError: A share is not positive, or nothing is left for the main dataset.
    """
    shares = [portion.share for portion in portions]
    if min(shares, default=1) <= 0 or sum(shares) >= 1:
        raise TrainyardError(
            f"mix: shares of {', '.join(f'{share:g}' for share in shares)} are not valid. Write shares above 0 that "
            "add up to less than 1; the dataset itself has the rest."
        )
    return (1 - sum(shares), *shares)


def merge_statistics(statistics: Sequence[Statistics], weights: Sequence[float]) -> Statistics:
    """Return mean and standard deviation of a column over a mixture, from those over its parts.

    Args:
        statistics: The statistics of each part.
        weights: The values of each part in the mixture, or numbers in proportion to them.
    """
    count = sum(part.count for part in statistics)
    known = [number for number, part in enumerate(statistics) if part.count and part.mean]
    if not known:
        return Statistics(count=count)
    weights = [weights[number] for number in known]
    means = np.array([statistics[number].mean for number in known])
    deviations = np.array([statistics[number].std for number in known])
    mean = np.average(means, 0, weights)
    std = np.sqrt(np.average(deviations**2 + (means - mean) ** 2, 0, weights))
    return Statistics(count=count, mean=tuple(mean.tolist()), std=tuple(std.tolist()))


def _check_same_values(uri: str, manifest: DatasetManifest, portion: Portion, columns: Sequence[str]) -> None:
    """Check that indices of categories and classes mean the same values in two datasets."""
    one, other = manifest.fitted, portion.manifest.fitted
    of_both = {*(one.sizes if one else ()), *(other.sizes if other else ())}
    if one != other and (encoded := [name for name in columns if name in of_both]):
        raise TrainyardError(
            f"mix: the indices in column {encoded[0]!r} mean other values in {portion.uri} than in {uri}: each was "
            "fitted on its own rows. Export all rows to one dataset, as partitions or with sample weights."
        )


def _check_same_columns(first: SplitReader, other: SplitReader) -> None:
    for column, same in zip(first.columns, other.columns, strict=True):
        if column != same:
            raise TrainyardError(
                f"mix: column {column.name!r} is a {column.kind} of {column.type} {list(column.shape)} in {first.uri}, "
                f"but a {same.kind} of {same.type} {list(same.shape)} in {other.uri}; export both alike."
            )
