"""Restore a checkpoint from a storage that fails, or for another network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from trainyard.errors import TrainyardError, UnavailableError
from trainyard.files import retries
from trainyard.trainer.checkpointing import dcp
from trainyard.trainer.checkpointing.checkpoints import Checkpoints, Position, SavedCheckpoint
from trainyard.trainer.world import World


class Outage:
    """A storage whose reads fail `failures` times, or always if it is negative."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures = 0
        locate = dcp.locate

        def locate_failing(uri: str) -> tuple[Any, str]:
            client, path = locate(uri)
            return _Client(client, self), path

        monkeypatch.setattr(dcp, "locate", locate_failing)


class _Client:
    def __init__(self, client: Any, outage: Outage) -> None:
        self._client, self._outage = client, outage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def open(self, path: str, mode: str) -> Any:
        stream = self._client.open(path, mode)
        return _Stream(stream, self._outage) if mode == "rb" else stream


class _Stream:
    def __init__(self, stream: Any, outage: Outage) -> None:
        self._stream, self._outage = stream, outage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def read(self, size: int = -1) -> bytes:
        if self._outage.failures:
            self._outage.failures -= 1
            raise OSError("the NameNode is in safe mode")
        return self._stream.read(size)  # type: ignore[no-any-return]


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Outage:
    return Outage(monkeypatch)


@pytest.fixture
def saved(tmp_path: Path) -> SavedCheckpoint:
    group = Checkpoints(str(tmp_path), "run", "a", World(), 1)
    group.save(Position(7), {"model": {"w": torch.full((2,), 7.0)}}, {}, {}, False)
    group.wait()
    newest = Checkpoints(str(tmp_path), "run", "a", World(), 1).newest
    assert newest
    return newest


def test_a_storage_that_fails_for_a_moment_does_not_fail_the_restore(saved: SavedCheckpoint, outage: Outage) -> None:
    outage.failures = 2
    state = {"model": {"w": torch.zeros(2)}}
    saved.load_into(state)
    assert state["model"]["w"].tolist() == [7, 7]


def test_a_storage_that_stays_away_is_not_the_fault_of_the_recipe(
    saved: SavedCheckpoint, outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage.failures = -1
    monkeypatch.setattr(retries, "RETRY_SECONDS", 0.1)
    with pytest.raises(UnavailableError, match=r"cannot read .*/step-00000007-group-1.*the NameNode is in safe mode"):
        saved.load_into({"model": {"w": torch.zeros(2)}})


@pytest.mark.parametrize("state", [{"w": torch.zeros(4)}, {"other": torch.zeros(2)}])
def test_a_checkpoint_of_another_network_is_refused(saved: SavedCheckpoint, state: dict[str, Tensor]) -> None:
    with pytest.raises(TrainyardError, match="If the recipe now builds a different network, remove the") as refused:
        saved.load_into({"model": state})
    assert not isinstance(refused.value, UnavailableError)
