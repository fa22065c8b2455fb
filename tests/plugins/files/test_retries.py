"""Reads that are repeated until a deadline."""

from __future__ import annotations

import pytest

from trainyard.errors import StorageError, UnavailableError
from trainyard.files import retries
from trainyard.files.retries import retry


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "MAX_WAIT_SECONDS", 0.01)


def fail(times: int, error: Exception) -> object:
    left = [error] * times

    def function() -> str:
        if left:
            raise left.pop()
        return "data"

    return function


def test_a_read_that_fails_for_a_while_succeeds(capfd: pytest.CaptureFixture[str]) -> None:
    assert retry("read hdfs://nn/file", fail(3, OSError("in failover"))) == "data"  # type: ignore[arg-type]
    assert capfd.readouterr().out == "cannot read hdfs://nn/file, trying again: OSError: in failover\n", "said once"


def test_an_error_of_hdfs_is_repeated_although_its_message_is_for_the_user() -> None:
    assert retry("read", fail(1, StorageError("in failover"))) == "data"  # type: ignore[arg-type]


def test_after_the_deadline_the_error_names_the_file_and_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_SECONDS", 0.1)
    with pytest.raises(UnavailableError, match=r"cannot read hdfs://nn/file, for 0 s: OSError: in failover"):
        retry("read hdfs://nn/file", fail(10**6, OSError("in failover")))  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [FileNotFoundError("gone"), PermissionError("no"), ValueError("bad")])
def test_an_error_that_would_come_again_is_raised_at_once(error: Exception) -> None:
    with pytest.raises(type(error)):
        retry("read", fail(1, error))  # type: ignore[arg-type]
