"""docker-compose.yaml and the sources of its images, checked without Docker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SECRET = re.compile(r"PASSWORD$|SECRET|KEY$|SQL_ALCHEMY_CONN$")
DOCKERFILES = sorted(ROOT.glob("stack/compose/**/Dockerfile"))


def load_compose(name: str = "docker-compose.yaml") -> Any:
    return yaml.safe_load((ROOT / name).read_text())


SERVICES: dict[str, Any] = load_compose()["services"]


def read_example() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_pages_are_published_only_on_loopback() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert ports
    assert all(re.fullmatch(r"127\.0\.0\.1:\$\{\w+:-\d+\}:\d+", port) for port in ports)


def test_the_default_of_a_port_is_that_of_the_example() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    defaults = dict(re.findall(r"\$\{(\w+):-(\d+)\}", " ".join(ports)))
    assert defaults == {name: value for name, value in read_example().items() if name.endswith("_PORT")}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_that_fails_is_restarted(name: str) -> None:
    assert SERVICES[name]["restart"] == "on-failure"


@pytest.mark.parametrize("name", SERVICES)
def test_services_wait_until_their_dependencies_are_healthy(name: str) -> None:
    dependencies = SERVICES[name].get("depends_on", {})
    assert set(dependencies) <= set(SERVICES)
    assert all(condition == {"condition": "service_healthy"} for condition in dependencies.values())


def test_data_is_in_named_volumes_and_code_is_mounted_read_only() -> None:
    mounts = [mount.split(":") for service in SERVICES.values() for mount in service.get("volumes", [])]
    folders = {tuple(mount) for mount in mounts if mount[0].startswith(".")}
    assert folders == {
        (f"./{folder}", f"/opt/trainyard/{folder}", "ro") for folder in ("dags", "plugins", "etl", "trainer")
    }
    assert {mount[0] for mount in mounts} - {folder[0] for folder in folders} == set(load_compose()["volumes"])


def test_secrets_come_from_env_without_a_default() -> None:
    settings = [pair for service in SERVICES.values() for pair in service.get("environment", {}).items()]
    secrets = {name: value for name, value in settings if SECRET.search(name)}
    references = {name: re.findall(r"\$\{(\w+):\?[^}]*\}", value) for name, value in secrets.items()}
    assert all(references.values())
    assert {name for names in references.values() for name in names} == {n for n in read_example() if SECRET.search(n)}


def test_the_example_has_no_secrets_and_git_ignores_the_copy() -> None:
    assert [value for name, value in read_example().items() if SECRET.search(name)] == [""] * 5
    assert ".env" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_secrets_are_random_and_readable_only_by_their_owner(tmp_path: Path, umask: int) -> None:
    shutil.copy(ROOT / ".env.example", tmp_path)
    script = shutil.copytree(ROOT / "stack/compose", tmp_path / "stack/compose") / "up.sh"
    # The script exits when compose fails, after the file was written.
    subprocess.run([script], env={"PATH": os.environ["PATH"], "COMPOSE": "false"}, check=False, umask=umask)
    file = tmp_path / ".env"
    values = dict(line.split("=", 1) for line in file.read_text().splitlines() if SECRET.search(line.split("=")[0]))
    assert len(set(values.values())) == 5 and all(len(value) == 44 for value in values.values())
    assert file.stat().st_mode & 0o777 == 0o600


def use_local_airflow(checkout: Path, migration: str, home: str = ".run") -> bool:
    """Source env.sh with a program in place of Airflow's; return whether it succeeded."""
    script = shutil.copytree(ROOT / "stack/local", checkout / "stack/local", dirs_exist_ok=True) / "env.sh"
    shutil.copy(ROOT / "requirements.txt", checkout)
    airflow = checkout / ".venv/bin/airflow"
    airflow.parent.mkdir(parents=True, exist_ok=True)
    airflow.write_text(f'#!/bin/sh\necho "$*" >>{checkout}/calls\ntouch "$AIRFLOW_HOME/airflow.db"\n{migration}\n')
    airflow.chmod(0o755)
    command = ["bash", "-euc", f". {script}"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(checkout), "TRAINYARD_HOME": str(checkout / home)}
    return subprocess.run(command, env=environment, check=False, umask=0o022).returncode == 0


def test_the_folder_of_a_local_airflow_is_accessible_only_to_its_owner(tmp_path: Path) -> None:
    assert use_local_airflow(tmp_path, "exit 0")
    assert (tmp_path / ".run/airflow").stat().st_mode & 0o777 == 0o700


def test_the_database_of_a_local_airflow_is_migrated_once_and_again_after_an_interrupt(tmp_path: Path) -> None:
    migrations = ["kill -INT $PPID; exit 130", "exit 1", "exit 0", "exit 0"]
    assert [use_local_airflow(tmp_path, migration) for migration in migrations] == [False, False, True, True]
    assert (tmp_path / "calls").read_text().splitlines() == ["db migrate"] * 3


@pytest.mark.parametrize(("installed", "migrations"), [("3.3.2", 1), ("", 2)])
def test_another_local_airflow_of_the_installed_version_gets_a_copy_of_the_database(
    tmp_path: Path, installed: str, migrations: int
) -> None:
    if installed:
        (tmp_path / f".venv/lib/python3.11/site-packages/apache_airflow_core-{installed}.dist-info").mkdir(parents=True)
    for home in (".run", "other", "other"):
        assert use_local_airflow(tmp_path, "exit 0", home)
        assert (tmp_path / home / "airflow" / "airflow.db").exists()
    assert (tmp_path / "calls").read_text().splitlines() == ["db migrate"] * migrations


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.parent.name)
def test_no_image_has_a_secret(file: Path) -> None:
    settings = re.findall(r"^(?:ENV|ARG) (.*)$", file.read_text(), re.MULTILINE)
    names = [word.split("=")[0] for line in settings for word in line.split()]
    assert not [name for name in names if SECRET.search(name)]
    assert (ROOT / ".dockerignore").read_text().startswith("*\n")


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda file: file.parent.name)
def test_images_are_based_only_on_debian(file: Path) -> None:
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", file.read_text(), re.MULTILINE)
    assert {base for base, _ in stages} <= {"debian:bookworm-slim"} | {name for _, name in stages}


def test_no_image_runs_as_root() -> None:
    images = {service["build"].get("target", "postgres") for service in SERVICES.values()}
    stages = {"postgres": (ROOT / "stack/compose/postgres/Dockerfile").read_text()}
    for stage in (ROOT / "stack/compose/Dockerfile").read_text().split("\nFROM ")[1:]:
        stages[stage.split()[2]] = stage
    assert images <= set(stages)
    assert {image: re.findall(r"^USER (\S+)$", stages[image], re.MULTILINE) for image in images} == {
        "postgres": ["postgres"],
        "hadoop": ["trainyard"],
        "airflow": ["trainyard"],
        "node": ["trainyard"],
    }


def test_with_gpus_only_the_node_of_the_partition_differs() -> None:
    [(name, changed)] = load_compose("docker-compose.gpu.yaml")["services"].items()
    [device] = changed["deploy"]["resources"]["reservations"]["devices"]
    assert (name, device["driver"], device["capabilities"]) == ("gpunode1", "nvidia", ["gpu"])
    assert changed["image"] not in {service["image"] for service in SERVICES.values()}
