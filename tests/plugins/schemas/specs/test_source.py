"""A table may have a version in its name."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainyard.schemas.specs.source import Source


def test_the_version_of_a_table_is_an_option_of_its_reader() -> None:
    source = Source.model_validate({"table": "sales.orders@42", "options": {"a": "b"}})
    assert (source.table, source.options) == ("sales.orders", {"a": "b", "versionAsOf": "42"})
    assert (source.version, source.describe()) == ("42", "table sales.orders@42")


@pytest.mark.parametrize("name", ["sales.orders", "s.`a@b`", "s.orders@", "s.orders@v2", "s.orders@now"])
def test_a_table_without_a_number_at_its_end_has_no_version(name: str) -> None:
    source = Source.model_validate({"table": name})
    assert (source.table, source.version) == (name, "")


@pytest.mark.parametrize(
    ("options", "version"),
    [({}, ""), ({"versionasof": "7"}, "7"), ({"TIMESTAMPASOF": "2026-10-01"}, "2026-10-01"), ({"version": "7"}, "")],
)
def test_options_of_a_path_name_a_version_in_any_case(options: dict[str, str], version: str) -> None:
    source = Source(format="delta", path="/orders", options=options)
    assert source.version == version
    assert source.describe() == f"delta at /orders{'@' * bool(version)}{version}"


def test_a_source_at_a_version_keeps_its_other_options() -> None:
    source = Source(format="delta", path="/orders", options={"a": "b"}).at_version("3")
    assert source.options == {"a": "b", "versionAsOf": "3"}


@pytest.mark.parametrize("options", [{"versionAsOf": "1"}, {"timestampasof": "2026-10-01"}])
def test_two_versions_of_a_table_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="have two versions; write one of them"):
        Source.model_validate({"table": "sales.orders@42", "options": options})


@pytest.mark.parametrize("name", ["since", "SINCE"])
def test_the_version_since_which_rows_are_read_is_no_option_of_the_reader(name: str) -> None:
    source = Source.model_validate({"table": "sales.orders", "options": {"a": "b", name: 41}}).at_version("42")
    assert (source.since, source.version, source.reader_options) == ("41", "42", {"a": "b", "versionAsOf": "42"})
    assert source.describe() == "table sales.orders@42 since 41"


def test_since_of_files_is_an_option_of_their_reader() -> None:
    source = Source(format="trainyard", path="/orders", options={"since": "41"})
    assert (source.since, source.reader_options) == ("", {"since": "41"})


def test_since_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValidationError, match="since='2026-10-01' of the options is not valid; write the number of a"):
        Source.model_validate({"table": "sales.orders", "options": {"since": "2026-10-01"}})


def test_an_empty_since_reads_all_rows_as_a_first_run_does() -> None:
    assert Source.model_validate({"table": "sales.orders", "options": {"since": ""}}).since == ""
