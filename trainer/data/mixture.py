"""Several datasets as one: their blocks end to end, each dataset with a share of the rows of an epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from trainyard.errors import TrainyardError
from trainyard.schemas import manifest as manifests
from trainyard.schemas.manifest import DatasetManifest, Statistics
from trainyard.trainer.data.cache import ShardCache
from trainyard.trainer.data.split_reader import Block, SplitReader


@dataclass(frozen=True)
class Portion:
    """Rows of the dataset at `uri`, as `share` of an epoch's."""

    uri: str
    share: float
    manifest: DatasetManifest

    @classmethod
    def of(cls, uri: str, share: float) -> Portion:
        """Of its newest version. Raises TrainyardError where there is none."""
        return cls(uri, share, manifests.read_current(uri))


class Mixture:
    """The blocks of some datasets. Of an epoch, which has as many rows as all, `shares[i]` are from `parts[i]`.

    It is read as a SplitReader is. Raises TrainyardError where datasets have different columns.
    """

    def __init__(self, parts: Sequence[SplitReader], shares: Sequence[float]) -> None:
        for part in parts[1:]:
            _check_alike(parts[0], part)
        self.parts, self.shares = tuple(parts), tuple(shares)
        self.name = parts[0].name
        self.columns = parts[0].columns
        self.remote = any(part.remote for part in parts)
        self.blocks = tuple(rows for part in parts for rows in part.blocks)
        self.rows = sum(self.blocks)
        self.row_bytes = max(part.row_bytes for part in parts)
        self._firsts = list(accumulate((len(part.blocks) for part in parts[:-1]), initial=0))

    @property
    def groups(self) -> tuple[int, ...]:
        """How many of the blocks are of each dataset."""
        return tuple(len(part.blocks) for part in self.parts)

    def find(self, block: int) -> tuple[int, int]:
        """Which of the parts a block is of, and its number there."""
        part = bisect_right(self._firsts, block) - 1
        return part, block - self._firsts[part]

    def block(self, block: int) -> Block:
        part, number = self.find(block)
        return self.parts[part].block(number)

    def locate(self, block: int, row: int) -> str:
        """Where a row of a block lies, in words."""
        part, number = self.find(block)
        return self.parts[part].locate(number, row)

    def announce(self, blocks: Iterable[int]) -> None:
        """Remote `blocks` will be asked for soon."""
        wanted = defaultdict(list)
        for part, number in map(self.find, blocks):
            wanted[part].append(number)
        for part, numbers in wanted.items():
            if self.parts[part].remote:
                self.parts[part].announce(numbers)


def mixed(
    uri: str,
    manifest: DatasetManifest,
    split: str,
    columns: tuple[str, ...],
    mix: Sequence[Portion] = (),
    cache: ShardCache | None = None,
) -> SplitReader | Mixture:
    """A split of the dataset at `uri`, with the same split of those that are mixed into it. Raises TrainyardError."""
    all = [(uri, manifest), *((portion.uri, portion.manifest) for portion in mix)]
    parts = [SplitReader(at, found, split, columns, cache=cache) for at, found in all]
    return Mixture(parts, shares(mix)) if mix else parts[0]


def shares(portions: Sequence[Portion]) -> tuple[float, ...]:
    """The share of the dataset that `portions` are mixed with, which has the rest, and theirs.

    Raises TrainyardError where nothing is left, or a share is none.
    """
    mixed = [portion.share for portion in portions]
    if min(mixed, default=1) <= 0 or sum(mixed) >= 1:
        raise TrainyardError(
            f"mix: shares are more than 0 and add up to less than 1, the rest being of the dataset itself; "
            f"{', '.join(f'{share:g}' for share in mixed)} are not."
        )
    return (1 - sum(mixed), *mixed)


def statistics(figures: Sequence[Statistics], shares: Sequence[float]) -> Statistics:
    """Mean and standard deviation of a column over a mixture, from those over its parts."""
    means = np.array([part.mean for part in figures])
    deviations = np.array([part.std for part in figures])
    mean = np.average(means, 0, shares)
    std = np.sqrt(np.average(deviations**2 + (means - mean) ** 2, 0, shares))
    return Statistics(count=sum(part.count for part in figures), mean=tuple(mean.tolist()), std=tuple(std.tolist()))


def _check_alike(one: SplitReader, other: SplitReader) -> None:
    for mine, its in zip(one.columns, other.columns, strict=True):
        if mine != its:
            raise TrainyardError(
                f"mix: column {mine.name!r} is a {mine.kind} of {mine.type} {list(mine.shape)} in {one.uri}, and a "
                f"{its.kind} of {its.type} {list(its.shape)} in {other.uri}; export it alike."
            )
