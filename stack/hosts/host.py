"""A host of a test bed: namespaces of this machine with a network, a name, processes, /tmp and /dev/shm of their own.

All other files are those of the machine. A host ends with the process that has booted it, whatever ends that: its first
process reads from a pipe of which only that process has the other end.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

INTERFACE = "eth0"
NAMESPACES = ("--net", "--uts", "--mount", "--pid", "--ipc")
_BOOT = """set -euo pipefail
name=$1 files=$2 disk=$3; shift 3
hostname "$name"
mount --bind "$files/hosts" /etc/hosts
mount --bind "$files/resolv.conf" /etc/resolv.conf
if [ "$disk" ]; then mount -t tmpfs -o "size=${disk}m,mode=1777" tmpfs "$files/tmp"; fi
for folder; do mkdir -p "$files$folder"; mount --bind "$folder" "$files$folder"; done
mount --rbind "$files/tmp" /tmp
mount -t proc proc /proc
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ip link set lo up
echo booted
read -r || true
"""
"""What the first process of a host runs: bash, which also waits for processes that have lost their parents."""

_END_TOGETHER = ("setpriv", "--pdeathsig", "KILL", "--")
"""The beginning of a command that ends with its parent, nsenter, unless it changes its user."""
_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
_WITHOUT_PROXIES = tuple(f"--unset={name}" for proxy in _PROXIES for name in (proxy, proxy.upper()))


@dataclass
class Switch:
    """A network to which hosts are connected. It has a network namespace of its own, with a bridge.

    Attributes:
        network: The addresses that hosts have, IPv4 or IPv6.
    """

    network: ipaddress.IPv4Network | ipaddress.IPv6Network
    _process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Create the bridge."""
        script = "ip link add bridge type bridge && ip link set bridge up && echo started && { read -r || true; }"
        self._process = _start(["unshare", "--net", "bash", "-c", script])

    def stop(self) -> None:
        """Remove the bridge and all cables."""
        if self._process:
            _end(self._process)

    def run(self, *command: str) -> None:
        """Run a command in the network namespace of the bridge. Raises RuntimeError with its message if it fails."""
        assert self._process, "the switch has not been started"
        _configure("nsenter", f"--target={self._process.pid}", "--net", "--", *command)


@dataclass
class Host:
    """A host; it is off until it is booted.

    Attributes:
        name: Its host name.
        number: Its number in the network, of which its address and the name of its cable follow.
        switch: What its cable is connected to.
        files: The folder of its /tmp and its own files of /etc.
        shared: Folders below /tmp of the machine that it has as well.
        disk_mb: The size of its /tmp, which is then in memory; None for a folder of the machine's disk.
    """

    name: str
    number: int
    switch: Switch
    files: Path
    shared: Sequence[Path] = ()
    disk_mb: int | None = None
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """Its IP address."""
        return str(self.switch.network[self.number])

    @property
    def is_on(self) -> bool:
        """Whether it has been booted, and not been switched off since."""
        return self._process is not None

    def boot(self) -> None:
        """Start the host, with its cable connected. Its /tmp has the files of before, unless it is in memory.

        Raises:
            RuntimeError: A mount or the network cannot be set up; the host is on then, until it is switched off.
        """
        (self.files / "tmp").mkdir(exist_ok=True)
        (self.files / "tmp").chmod(0o1777)
        disk = "" if self.disk_mb is None else str(self.disk_mb)
        arguments = [self.name, str(self.files), disk, *(str(folder) for folder in self.shared)]
        self._process = _start(["unshare", *NAMESPACES, "--fork", "--kill-child", "bash", "-c", _BOOT, "-", *arguments])
        # Others keep the hardware address of a host that was off for a moment.
        mac = f"02:00:00:00:00:{self.number:02x}"
        peer = ("peer", "name", INTERFACE, "address", mac, "netns", str(self._find_first_process()))
        self.switch.run("ip", "link", "add", self._port, "type", "veth", *peer)
        self.switch.run("ip", "link", "set", self._port, "master", "bridge", "up")
        prefix = f"{self.address}/{self.switch.network.prefixlen}"
        flags = ["nodad"] if self.switch.network.version == 6 else []
        _configure(*self.build_command("ip", "address", "add", prefix, "dev", INTERFACE, *flags))
        _configure(*self.build_command("ip", "link", "set", INTERFACE, "up"))

    def switch_off(self) -> None:
        """End all processes at once. No peer receives the end of a connection, as after a power failure."""
        if self._process is None:
            return
        try:
            with contextlib.suppress(RuntimeError):  # there is no cable if the host could not be booted
                self.cut_cable()
            with contextlib.suppress(psutil.NoSuchProcess, IndexError):
                psutil.Process(self._find_first_process()).send_signal(signal.SIGKILL)
        finally:
            _end(self._process)
            self._process = None
        with contextlib.suppress(RuntimeError):  # Linux also deletes it with the network of the host, a moment later
            self.switch.run("ip", "link", "delete", self._port)

    def cut_cable(self) -> None:
        """Drop all packets from and to the host, whose processes go on; it has its address and routes still."""
        self.switch.run("ip", "link", "set", self._port, "down")

    def connect_cable(self) -> None:
        """Connect the cable again."""
        self.switch.run("ip", "link", "set", self._port, "up")

    def limit_rate(self, rate: str) -> None:
        """Limit what the host sends, and what it receives, to a rate such as "100mbit"."""
        limit = ("root", *build_limit(rate))
        _configure(*self.build_command("tc", "qdisc", "replace", "dev", INTERFACE, *limit))
        self.switch.run("tc", "qdisc", "replace", "dev", self._port, *limit)

    def fill_disk(self) -> None:
        """Write to /tmp, which must be in memory, until no space is left.

        Raises:
            ValueError: Its /tmp is a folder of the machine's disk.
            RuntimeError: Some space is left.
        """
        if self.disk_mb is None:
            raise ValueError(f"the /tmp of host {self.name} is on the disk of the machine: set disk_mb, for example 64")
        self.run("dd", "if=/dev/zero", "of=/tmp/full", "bs=1M", check=False, capture_output=True)
        if free := os.statvfs(f"/proc/{self._find_first_process()}/root/tmp").f_bavail:
            raise RuntimeError(f"the /tmp of host {self.name} still has {free} free blocks")

    def build_command(self, *command: str, folder: Path | None = None) -> list[str]:
        """Return the command of this machine that runs a command on the host; when it is killed, both end.

        The command has no proxy in its environment: hosts reach each other, and nothing else.

        Args:
            command: The command.
            folder: Its working directory; / if it is None.
        """
        target = f"--target={self._find_first_process()}"
        folders = [f"--chdir={folder}"] if folder else []
        environment = ["env", *_WITHOUT_PROXIES, *folders]
        return ["nsenter", target, *NAMESPACES, "--", *_END_TOGETHER, *environment, *command]

    def run(self, *command: str, folder: Path | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on the host to its end.

        Args:
            command: The command.
            folder: Its working directory; / if it is None.
            options: Options of `subprocess.run`. An exit status other than 0 raises, unless `check` is False.
        """
        return _run(*self.build_command(*command, folder=folder), **options)

    def start(
        self, *command: str, log: Path, folder: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command on the host, which ends with it; what it prints is appended to the file `log`."""
        with log.open("ab") as file:
            return subprocess.Popen(
                self.build_command(*command, folder=folder), env=environment, stdin=subprocess.DEVNULL, stdout=file,
                stderr=file, start_new_session=True,
            )  # fmt: skip

    @property
    def _port(self) -> str:
        return f"port{self.number}"

    def _find_first_process(self) -> int:
        if self._process is None:
            raise RuntimeError(f"the host {self.name} is off")
        return int(psutil.Process(self._process.pid).children()[0].pid)


def build_limit(rate: str) -> tuple[str, ...]:
    """Return the queueing discipline of tc that limits what is sent to a rate such as "100mbit"."""
    return ("tbf", "rate", rate, "burst", "64kb", "latency", "50ms")


def _start(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a process that reads its input until this process ends; return it when it has written a line."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout and process.stderr
    if not process.stdout.readline():
        raise RuntimeError(f"{command[0]}: {process.stderr.read().strip()}")
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.communicate()  # closes its input


def _configure(*command: str) -> None:
    """Run a command that prints why it fails, and raise RuntimeError with that."""
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: {process.stderr.strip()}")


def _run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, **{"check": True, "text": True, **options})
