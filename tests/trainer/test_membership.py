"""Workers recognize each other over the connections that their tensors take."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer.membership import Membership
from trainyard.trainer.world import World

pytestmark = pytest.mark.ranks


def verify(world: World, secrets: list[bytes], groups: int = 1) -> str:
    membership = Membership(secrets[world.rank], world.rank, world.size)
    try:
        for _ in range(groups):
            membership.verify(torch.device("cpu"), dist.new_group(backend="gloo"))
    except TrainyardError as error:
        return str(error)
    return "all are members"


def test_the_workers_of_a_group_are_members_of_all_its_process_groups() -> None:
    with Workers(3) as workers:
        assert workers(verify, [b"secret"] * 3, 2) == ["all are members"] * 3


def test_a_process_without_the_secret_is_found_by_every_worker() -> None:
    with Workers(3) as workers:
        texts = workers(verify, [b"secret", b"guessed", b"secret"])
    assert texts[0].startswith("rank 0 is connected to something else than rank 1 of its worker group.")
    assert texts[2].startswith("rank 2 is connected to something else than rank 1 of its worker group.")
