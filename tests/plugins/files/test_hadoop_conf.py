"""Hadoop's client configuration, as containers have it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.errors import TrainyardError
from trainyard.files import hadoop_conf


@pytest.mark.parametrize(
    ("text", "umask"),
    [
        ("", 0o022),
        ("027", 0o027),
        ("0077", 0o077),
        ("000", 0),
        ("u=rwx,g=rwx,o=", 0o007),
        ("u=rwx, g=rx, o=rx", 0o022),
        ("a=rx,u+w", 0o022),
        ("=rwx,o-w", 0o002),
    ],
)
def test_the_umask_is_that_of_hadoop(text: str, umask: int) -> None:
    assert hadoop_conf.parse_umask(text) == umask


@pytest.mark.parametrize("text", ["22", "088", "u=rwz", "rwx"])
def test_an_umask_that_is_not_valid_is_refused_by_name(text: str) -> None:
    with pytest.raises(TrainyardError) as refused:
        hadoop_conf.parse_umask(text)
    assert str(refused.value) == (
        f"fs.permissions.umask-mode={text!r} of Hadoop's client configuration is not valid; write an octal number such "
        "as 027, or permissions such as u=rwx,g=rx,o=."
    )


def test_the_umask_may_be_in_either_file_of_the_client(tmp_path: Path) -> None:
    environ = {"YARN_CONF_DIR": str(tmp_path)}
    assert hadoop_conf.read_umask(environ) == hadoop_conf.read_umask({}) == 0o022
    for umask, name in enumerate(("core-site.xml", "hdfs-site.xml"), start=1):
        entry = f"<property><name>fs.permissions.umask-mode</name><value>00{umask}</value></property>"
        (tmp_path / name).write_text(f"<configuration>{entry}</configuration>")
        assert hadoop_conf.read_umask(environ) == umask
