"""The GPU that a Spark Python worker applies models on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trainyard.etl.scoring import worker_model


@pytest.mark.parametrize(
    ("assigned", "task", "visible", "used"),
    [(["1"], 6, 4, [1]), (["7"], 6, 1, [0]), (None, 6, 4, [2]), (None, 3, 4, [3]), (None, 6, 1, [0]), (None, 6, 0, [])],
)
def test_tasks_use_the_gpu_that_spark_assigned_or_take_turns(
    monkeypatch: pytest.MonkeyPatch, assigned: list[str] | None, task: int, visible: int, used: list[int]
) -> None:
    resources = {"gpu": SimpleNamespace(addresses=assigned)} if assigned else {}
    context = SimpleNamespace(cpus=lambda: 1, resources=lambda: resources, partitionId=lambda: task)
    chosen: list[int] = []
    monkeypatch.setattr(worker_model.TaskContext, "get", lambda: context)
    monkeypatch.setattr(worker_model.ModelArtifact, "from_json", lambda document, origin: document)
    monkeypatch.setattr(worker_model, "restore_model", lambda uri, artifact: artifact)
    monkeypatch.setattr("torch.cuda.device_count", lambda: visible)
    monkeypatch.setattr("torch.cuda.set_device", chosen.append)
    worker_model.load_model(f"{assigned} {task} {visible}", "")
    assert chosen == used
