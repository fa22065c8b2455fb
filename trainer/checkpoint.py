"""Checkpoints: the whole state of a run after an epoch, in a file that appears complete or not at all."""

from __future__ import annotations

import io
from typing import Any

import torch

from trainyard.contract import storage

KEPT = 2


def save(directory: str, epoch: int, state: dict[str, Any]) -> None:
    """Write the state after `epoch` epochs, and remove all but the newest `KEPT`."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    storage.replace(storage.join(directory, f"epoch-{epoch:05d}.pt"), buffer.getvalue())
    for name in _saved(directory)[:-KEPT]:
        storage.remove(storage.join(directory, name))


def newest(directory: str) -> dict[str, Any] | None:
    """The state that was saved last, or None."""
    found = _saved(directory)
    if not found:
        return None
    data = io.BytesIO(storage.read(storage.join(directory, found[-1])))
    return torch.load(data, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]


def _saved(directory: str) -> list[str]:
    return [name for name in storage.names(directory) if name.startswith("epoch-")]
