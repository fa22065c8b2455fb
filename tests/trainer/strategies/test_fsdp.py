"""FSDP refuses workers that share a GPU; `test_strategies.py` has its trainings."""

from __future__ import annotations

import pytest

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.strategies import FSDP as Options  # noqa: N811
from trainyard.trainer.strategies import build_strategy
from trainyard.trainer.world import World


def test_workers_that_share_a_gpu_are_refused() -> None:
    with pytest.raises(TrainyardError, match="needs a GPU for each worker, but some workers share one"):
        build_strategy(Options(name="fsdp"), World(0, 2, shares_gpu=True))
    assert build_strategy(Options(name="fsdp"), World(0, 2)).sharded
