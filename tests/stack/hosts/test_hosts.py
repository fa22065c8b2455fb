"""Hosts of a test bed: networks, names, disks, faults, and what is left when their owner is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from stack.hosts.bed import find_obstacle, run_hosts
from stack.hosts.demo import main
from stack.hosts.host import Host

ROOT = Path(__file__).parents[3]
SERVER = """
import socket
with socket.create_server(("", 7000), family=socket.AF_INET6, dualstack_ipv6=True) as server:
    connections = []
    while True:
        connections.append(server.accept()[0])
"""
RECEIVER = """
import socket, time
with socket.create_server(("", 7001), family=socket.AF_INET6, dualstack_ipv6=True) as server:
    print("listening", flush=True)
    connection, started = server.accept()[0], time.monotonic()
    while connection.recv(1 << 16):
        pass
    print(time.monotonic() - started)
"""
OWNER = """
import sys, time
from pathlib import Path
from stack.hosts.bed import run_hosts

folder = Path(sys.argv[1])
with run_hosts(["a", "b"], folder) as hosts:
    hosts["b"].start("sleep", "600", log=folder / "log")
    print("up", flush=True)
    time.sleep(600)
"""
Hosts = dict[str, Host]


@pytest.fixture(params=[4, 6], ids=["IPv4", "IPv6"])
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hosts]:
    """Two hosts; `b` has a small disk, and a server that accepts connections and never ends them."""
    with run_hosts(["a", "b"], tmp_path, {"b": 4}, request.param) as hosts:
        start_server(hosts["b"])
        yield hosts


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def start_server(host: Host) -> None:
    host.start(sys.executable, "-c", SERVER, log=host.files / "server.log")
    wait_for(lambda: can_connect(host, host.name))


def can_connect(host: Host, peer: str) -> bool:
    command = ("timeout", "1", "bash", "-c", f"exec 3<>/dev/tcp/{peer}/7000")
    return host.run(*command, check=False, capture_output=True).returncode == 0


def read(host: Host, command: str) -> str:
    return host.run("bash", "-c", command, capture_output=True).stdout.strip()


@pytest.mark.hosts
def test_hosts_reach_each_other_by_name_until_a_cable_is_cut(hosts: Hosts) -> None:
    assert (read(hosts["a"], "hostname"), read(hosts["b"], "hostname")) == ("a", "b")
    assert can_connect(hosts["a"], "b")
    hosts["b"].cut_cable()
    assert not can_connect(hosts["a"], "b")
    assert can_connect(hosts["b"], "b"), "its processes go on"
    hosts["b"].connect_cable()
    wait_for(lambda: can_connect(hosts["a"], "b"))


@pytest.mark.hosts
def test_a_host_that_is_switched_off_ends_its_processes_and_no_connection(hosts: Hosts, tmp_path: Path) -> None:
    log, b = tmp_path / "client.log", hosts["b"]
    script = "exec 3<>/dev/tcp/b/7000; echo connected; read -t 2 <&3; (($? > 128)) && echo silent || echo ended"
    client = hosts["a"].start("bash", "-c", script, log=log)
    wait_for(lambda: log.read_text() == "connected\n")
    process = b.start("bash", "-c", "echo started; exec sleep 600", log=tmp_path / "process.log")
    wait_for((tmp_path / "process.log").read_text)
    b.switch_off()
    assert process.wait() != 0
    client.wait()
    assert log.read_text() == "connected\nsilent\n"
    with pytest.raises(RuntimeError, match="the host b is off"):
        b.run("true")
    b.boot()
    start_server(b)
    assert can_connect(hosts["a"], "b")


@pytest.mark.hosts
def test_a_command_ends_when_its_process_on_the_machine_is_killed(hosts: Hosts, tmp_path: Path) -> None:
    def is_running(seconds: int) -> bool:
        return hosts["a"].run("pgrep", "-f", f"^sleep {seconds}", check=False, capture_output=True).returncode == 0

    process = hosts["a"].start("sleep", "601", log=tmp_path / "log")
    wait_for(lambda: is_running(601))
    process.kill()
    wait_for(lambda: not is_running(601))
    with pytest.raises(subprocess.TimeoutExpired):
        hosts["a"].run("sleep", "602", timeout=0.5)
    wait_for(lambda: not is_running(602))


@pytest.mark.hosts
def test_a_host_has_a_disk_of_its_own_that_may_be_full(hosts: Hosts) -> None:
    read(hosts["a"], "echo of a >/tmp/file")
    assert read(hosts["b"], "ls /tmp/file 2>/dev/null || echo none") == "none"
    hosts["b"].fill_disk()
    assert "No space left" in read(hosts["b"], "dd if=/dev/zero of=/tmp/file count=1 2>&1 || true")
    with pytest.raises(ValueError, match="the /tmp of host a is on the disk of the machine: set disk_mb"):
        hosts["a"].fill_disk()
    hosts["a"].switch_off()
    hosts["a"].boot()
    assert read(hosts["a"], "cat /tmp/file") == "of a"


@pytest.mark.hosts
@pytest.mark.parametrize(("sender", "receiver"), [("a", "b"), ("b", "a")])
def test_the_rate_of_a_cable_is_limited(hosts: Hosts, tmp_path: Path, sender: str, receiver: str) -> None:
    hosts["b"].limit_rate("8mbit")
    log = tmp_path / "receiver.log"
    process = hosts[receiver].start(sys.executable, "-c", RECEIVER, log=log)
    wait_for(lambda: log.read_text() == "listening\n")
    read(hosts[sender], f"head -c 1000000 /dev/zero >/dev/tcp/{receiver}/7001")
    assert process.wait() == 0
    assert float(log.read_text().split()[1]) > 0.8, "seconds for a million bytes"


@pytest.mark.hosts
def test_hosts_have_no_proxy(hosts: Hosts) -> None:
    proxies = {"http_proxy": "http://proxy.example:3128", "HTTPS_PROXY": "http://proxy.example:3128"}
    printed = hosts["a"].run("env", env=os.environ | proxies, capture_output=True).stdout
    assert "proxy.example" not in printed


@pytest.mark.hosts
def test_a_host_has_shared_memory_of_its_own(hosts: Hosts) -> None:
    name = f"/dev/shm/trainyard-{os.getpid()}"
    read(hosts["a"], f"echo of a >{name}")
    assert read(hosts["b"], f"ls {name} 2>/dev/null || echo none") == "none"
    assert not Path(name).exists()


@pytest.mark.hosts
def test_a_kernel_without_veth_is_an_obstacle_and_the_cause_of_a_boot_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real, replacement = shutil.which("ip"), tmp_path / "bin" / "ip"
    replacement.parent.mkdir()
    replacement.write_text(
        f'#!/bin/sh\ncase "$*" in *veth*) echo "not supported" >&2; exit 2;; esac\nexec {real} "$@"\n'
    )
    replacement.chmod(0o755)
    monkeypatch.setenv("PATH", f"{replacement.parent}:{os.environ['PATH']}")
    assert find_obstacle() == "Hosts need namespaces, bridges, veth and tbf of Linux: not supported."
    with pytest.raises(RuntimeError, match=r"type veth .*: not supported$"), run_hosts(["a"], tmp_path):
        pass
    assert not [process for process in psutil.process_iter() if str(tmp_path) in " ".join(get_arguments(process))]


@pytest.mark.hosts
def test_nothing_is_left_of_hosts_whose_owner_was_killed(tmp_path: Path) -> None:
    def list_links() -> str:
        return subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout

    def find_processes() -> list[psutil.Process]:
        text = str(tmp_path)
        return [process for process in psutil.process_iter() if text in " ".join(list_environment(process))]

    before, environment = list_links(), os.environ | {"PYTHONPATH": str(ROOT), "OWNER": str(tmp_path)}
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout and owner.stdout.readline() == "up\n"
        assert len(find_processes()) > 4
        owner.kill()
    wait_for(lambda: not find_processes())
    assert list_links() == before
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def get_arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def list_environment(process: psutil.Process) -> list[str]:
    try:
        return list(process.environ().values())
    except psutil.Error:
        return []


def test_a_user_without_root_reads_what_hosts_need(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["demo", "digits"])
    assert main() == 69
    assert capsys.readouterr().err == "Hosts need root, which creates their networks: run this as root.\n"


@pytest.mark.hosts
def test_a_second_demo_does_not_remove_the_folder_of_a_running_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    monkeypatch.setattr(sys, "argv", ["demo", "digits", "--home", str(home)])
    with (tmp_path / "home.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        home.mkdir()
        with pytest.raises(SystemExit, match=f"{home} is in use by another run"):
            main()
    assert home.exists()


def test_programs_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "")
    assert find_obstacle().startswith("Hosts need ip, tc, unshare, nsenter, setpriv: install")
