"""Files on a real HDFS."""

from __future__ import annotations

import os
import subprocess
from multiprocessing import get_context

import pytest

from stack.hadoop.cluster import Cluster
from trainyard.contract import storage

pytestmark = pytest.mark.cluster


@pytest.fixture
def uri(configured: Cluster) -> str:
    return storage.join(configured.storage, "files", os.urandom(4).hex())


def test_a_process_that_has_used_hdfs_can_start_others(uri: str) -> None:
    storage.create(uri, b"written")
    subprocess.run(["true"], preexec_fn=lambda: None, check=True, timeout=60)


def test_a_forked_process_has_clients_of_its_own(uri: str) -> None:
    storage.create(uri, b"before the fork")
    with get_context("fork").Pool(1) as pool:
        assert pool.apply_async(storage.read, [uri]).get(timeout=60) == b"before the fork"


def test_of_two_creations_one_succeeds(uri: str) -> None:
    storage.create(uri, b"first")
    with pytest.raises(FileExistsError):
        storage.create(uri, b"second")
    assert storage.read(uri) == b"first"
    assert storage.names(uri.rsplit("/", 1)[0]).count(uri.rsplit("/", 1)[1]) == 1


def test_what_is_replaced_is_never_absent(uri: str) -> None:
    storage.replace(uri, b"old")
    storage.replace(uri, b"new")
    assert storage.read(uri) == b"new"
