"""How long a worker group waits for its slots."""

from __future__ import annotations

import pytest

from trainyard.trainer.group.slots import compute_waits

PACKED = {"spark.yarn.dist.archives": "hdfs://nn/environment.tar.gz#environment"}


@pytest.mark.parametrize(
    ("master", "conf", "restarted", "seconds"),
    [
        ("local[2]", PACKED, False, (0, 0)),
        ("yarn", {}, False, (150, 30)),
        ("yarn", {}, True, (150, 30)),
        ("yarn", PACKED, False, (600, 120)),
        ("yarn", {"spark.archives": "env.zip"}, False, (600, 120)),
        ("yarn", PACKED, True, (600, 30)),
    ],
)
def test_a_group_waits_longer_where_nodes_unpack_an_archive_first(
    master: str, conf: dict[str, str], restarted: bool, seconds: tuple[float, float]
) -> None:
    assert compute_waits(master, conf, restarted) == seconds
