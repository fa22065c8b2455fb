"""Which masters have a backend."""

from __future__ import annotations

import pytest

from trainyard.backends.selection import check_master
from trainyard.planning.job import SparkConnection


@pytest.mark.parametrize("master", ["yarn", "local", "local[2]", "local[*]", "local[2,3]", "local-cluster[2,1,1024]"])
def test_local_masters_and_yarn_have_a_backend(master: str) -> None:
    assert check_master(SparkConnection("spark_default", master)) == ""


@pytest.mark.parametrize("master", ["localhost", "localhost:7077", "local[x]", "spark://local:7077", "k8s://x"])
def test_another_master_is_named_with_those_that_have_one(master: str) -> None:
    problem = check_master(SparkConnection("spark_default", master))
    assert problem.startswith("connection 'spark_default': the master that its type, host and port name is not")
    assert problem.endswith("Write its host as local[2] or yarn, without a scheme.")
