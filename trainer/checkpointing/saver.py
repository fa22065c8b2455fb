"""Save the states of a training one after the other, with torch's distributed checkpoint (DCP).

DCP plans which worker writes which tensors: each worker describes its tensors, and rank 0 merges the descriptions. That
costs some Python for each tensor and worker, in a thread beside the training. A plan is used again as long as all
workers have tensors of the same names, types and shapes, as is what rank 0 knows of their files. Nothing of this is
unpickled, unlike by torch's own `save`.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor

from trainyard.errors import summarize
from trainyard.schemas.runs.checkpoint import File
from trainyard.trainer import exchange
from trainyard.trainer.checkpointing.dcp import Writer

T = TypeVar("T")
R = TypeVar("R")
Answer = tuple[list[WriteResult] | None, dict[str, tuple[int, str]]]
"""What a worker has written, None if it is what it wrote the last time; and size and checksum of its files."""


class Saver:
    """Save states to one checkpoint after the other. All workers create it, and call `save`, together.

    Args:
        process_group: The workers; None for a single one.
    """

    def __init__(self, process_group: dist.ProcessGroup | None) -> None:
        self._process_group = process_group
        self._is_main = process_group is None or process_group.rank() == 0
        self._structure: list[tuple[Any, ...]] | None = None
        self._plan = SavePlan([])
        self._metadata: Metadata | None = None
        self._own_results: list[WriteResult] | None = None
        self._results: list[list[WriteResult]] = []
        self._document = b""

    def save(self, state: dict[str, Any], writer: Writer) -> dict[str, File]:
        """Write a state, and return the files of all workers on rank 0. An error of a worker is raised by all.

        Args:
            state: Nested dicts and lists of tensors on the CPU and other values.
            writer: Writes to the checkpoint.
        """
        planner = _Planner()

        def set_up() -> bool:
            planner.set_up_planner(state, writer.storage_meta(), self._is_main)
            writer.set_up_storage_writer(self._is_main)
            return planner.describe() == self._structure

        if not all(self._run_on_all(set_up)):
            self._structure = self._own_results = None
            self._plan = self._create_plan(planner, writer)
            self._structure = planner.describe()
        files: dict[str, File] = {}

        def write() -> Answer:
            results = writer.write_data(planner.finish_plan(self._plan), planner).wait()
            unchanged = results == self._own_results
            self._own_results = results
            return None if unchanged else results, {
                name: (file.bytes, file.sha256) for name, file in writer.files.items()
            }

        def finish(answers: Sequence[Answer]) -> list[None]:
            assert self._metadata is not None
            if any(results is not None for results, _ in answers):
                before = self._results or [[]] * len(answers)
                self._results = [old if new is None else new for (new, _), old in zip(answers, before, strict=True)]
                self._document = _serialize(self._metadata, self._results)
            writer.finish(self._metadata, self._results)
            writer.write_metadata(self._document)
            for _, written in answers:
                files.update({name: File(bytes=size, sha256=digest) for name, (size, digest) in written.items()})
            files.update(writer.files)
            return [None] * len(answers)

        try:
            self._run_and_merge(write, finish)
        except BaseException:
            self._structure = None  # rank 0 may not have the results of all workers
            raise
        return files

    def _create_plan(self, planner: DefaultSavePlanner, writer: Writer) -> SavePlan:
        def merge(plans: Sequence[SavePlan]) -> list[SavePlan]:
            merged, self._metadata = planner.create_global_plan(list(plans))
            return writer.prepare_global_plan(merged)

        return self._run_and_merge(lambda: writer.prepare_local_plan(planner.create_local_plan()), merge)

    def _run_on_all(self, work: Callable[[], T]) -> Sequence[T]:
        """Return what `work` returns on each worker. Raises RuntimeError on all of them if it fails on one."""
        answer, error = _attempt(work)
        answers = exchange.all_gather(answer, self._process_group) if self._process_group else [answer]
        return _get_values(answers, error)

    def _run_and_merge(self, work: Callable[[], T], merge: Callable[[Sequence[T]], Sequence[R]]) -> R:
        """Return this worker's part of what rank 0 merges from what `work` returns on each worker.

        Raises:
            RuntimeError: One of them has failed, on all workers.
        """
        group = self._process_group
        answer, error = _attempt(work)
        answers = exchange.gather(answer, group) if group else [answer]
        parts: list[Answered[R]] | None = None
        if answers is not None:  # this is rank 0
            (values, failure), error_of_merge = _attempt(lambda: merge(_get_values(answers, None)))
            parts = [(None, failure)] * len(answers) if values is None else [(value, None) for value in values]
            error = error or error_of_merge
        own = exchange.scatter(parts, group) if group else (parts or [])[0]
        return _get_values([own], error)[0]


Answered = tuple[T | None, str | None]
"""A value, or the text of an error."""


def _attempt(work: Callable[[], T]) -> tuple[Answered[T], BaseException | None]:
    """Return the value of `work`, or its error."""
    try:
        return (work(), None), None
    except BaseException as error:
        return (None, summarize(error)), error


def _get_values(answers: Sequence[Answered[T]], cause: BaseException | None) -> list[T]:
    """Return the values. Raises RuntimeError if there is an error, from its cause on the worker that has it."""
    if failure := next((error for _, error in answers if error is not None), None):
        raise RuntimeError(failure) from cause
    return [value for value, _ in answers]  # type: ignore[misc]


class _Planner(DefaultSavePlanner):
    def describe(self) -> list[tuple[Any, ...]]:
        """Return what the plan depends on."""
        return [(name, *_describe(value)) for name, value in self.state_dict.items()]

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return a value, as the base class does: of a sharded tensor the shard of this worker."""
        value = self.state_dict[index.fqn]
        return value.to_local() if isinstance(value, DTensor) else value


def _describe(value: Any) -> tuple[Any, ...]:
    if isinstance(value, DTensor):
        return value.dtype, value.shape, value.placements, value.device_mesh
    return (value.dtype, value.shape) if isinstance(value, torch.Tensor) else (type(value),)


def _serialize(metadata: Metadata, results: list[list[WriteResult]]) -> bytes:
    """Return the metadata as torch loads it without unpickling."""
    stored = {result.index: result.storage_data for written in results for result in written}
    stream = io.BytesIO()
    torch.save(dataclasses.replace(metadata, storage_data=stored, storage_meta=None), stream)
    return stream.getvalue()
