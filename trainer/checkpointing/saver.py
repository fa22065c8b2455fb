"""Save the states of a training one after the other, with torch's distributed checkpoint (DCP).

DCP plans which worker writes which tensors: each worker describes its tensors, and rank 0 merges the descriptions. That
costs some Python for each tensor and worker, in a thread beside the training. A plan is used again as long as all
workers have tensors of the same names, types and shapes, as is what rank 0 knows of their files.

This uses private interfaces of torch.distributed.checkpoint: `_DistWrapper`.
"""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.checkpoint.utils import _DistWrapper
from torch.distributed.tensor import DTensor

from trainyard.schemas.checkpoint import File
from trainyard.trainer.checkpointing.dcp import Writer

Answer = tuple[list[WriteResult] | None, dict[str, File]]


class Saver:
    """Save states to one checkpoint after the other. All workers create it, and call `save`, together.

    Args:
        process_group: The workers; None for a single one.
    """

    def __init__(self, process_group: dist.ProcessGroup | None) -> None:
        self._workers = _DistWrapper(process_group, process_group is not None, 0)
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
            planner.set_up_planner(state, writer.storage_meta(), self._workers.is_coordinator)
            writer.set_up_storage_writer(self._workers.is_coordinator)
            return planner.describe() == self._structure

        if not all(self._workers.all_gather("set up", set_up)):
            self._structure = self._own_results = None
            self._plan = self._create_plan(planner, writer)
            self._structure = planner.describe()
        files: dict[str, File] = {}

        def write() -> Answer:
            results = writer.write_data(planner.finish_plan(self._plan), planner).wait()
            unchanged = results == self._own_results
            self._own_results = results
            return None if unchanged else results, writer.files

        def finish(answers: list[Answer]) -> None:
            assert self._metadata is not None
            if any(results is not None for results, _ in answers):
                before = self._results or [[]] * len(answers)
                self._results = [old if new is None else new for (new, _), old in zip(answers, before, strict=True)]
                self._document = _serialize(self._metadata, self._results)
            writer.finish(self._metadata, self._results)
            writer.write_metadata(self._document)
            for written in (*(own for _, own in answers), writer.files):
                files.update(written)

        try:
            self._workers.all_reduce("write", write, finish)
        except BaseException:
            self._structure = None  # rank 0 may not have the results of all workers
            raise
        return files

    def _create_plan(self, planner: DefaultSavePlanner, writer: Writer) -> SavePlan:
        def merge(plans: list[SavePlan]) -> list[SavePlan]:
            plans, self._metadata = planner.create_global_plan(plans)
            return writer.prepare_global_plan(plans)

        return self._workers.reduce_scatter(
            "plan", lambda: writer.prepare_local_plan(planner.create_local_plan()), merge
        )


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
