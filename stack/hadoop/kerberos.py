"""Kerberos for the small Hadoop: a KDC of MIT Kerberos, and the configuration of daemons and clients.

All files are in the cluster's home. One keytab has the keys of every service and of the user.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from requests.auth import AuthBase

from stack.hadoop.config import USER, Properties

REALM = "TRAINYARD.TEST"
SERVICES = ("hdfs", "yarn", "HTTP")
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PATH = f"{os.environ['PATH']}:/usr/sbin"
_SPNEGO = f"HTTP/localhost@{REALM}"


@dataclass(frozen=True)
class Kdc:
    """A KDC that listens at `port` of the loopback interface and has its files in `home`."""

    home: Path
    port: int

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables with which a process uses this KDC."""
        config = self.home / "krb5.conf"
        return {"KRB5_CONFIG": str(config), "JDK_JAVA_OPTIONS": f"-Djava.security.krb5.conf={config}"}

    @property
    def tickets(self) -> Path:
        """The file of the user's tickets."""
        return self.home / "tickets"

    @property
    def keytab(self) -> Path:
        """The file of the keys of all principals."""
        return self.home / "keytab"

    @property
    def command(self) -> list[str]:
        """The command that runs the KDC."""
        return ["env", f"KRB5_KDC_PROFILE={self.home}/kdc.conf", f"PATH={_PATH}", "krb5kdc", "-n"]

    def create(self) -> None:
        """Create a realm, its principals and their keytab.

        Raises:
            SystemExit: The programs of MIT Kerberos are not installed.
        """
        if missing := [name for name in _PROGRAMS if not shutil.which(name, path=_PATH)]:
            raise SystemExit(f"Kerberos needs {', '.join(missing)}: install krb5-kdc, krb5-admin-server and krb5-user.")
        self.home.mkdir(mode=0o700)
        (self.home / "krb5.conf").write_text(_CLIENT.format(realm=REALM, port=self.port))
        (self.home / "kdc.conf").write_text(_SERVER.format(realm=REALM, port=self.port, home=self.home))
        (self.home / "signature").write_text(secrets.token_urlsafe())
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", secrets.token_urlsafe())
        for principal in (*(f"{service}/localhost" for service in SERVICES), USER):
            self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-q", f"ktadd -k {self.keytab} {principal}")

    def log_in(self) -> bool:
        """Request the user's ticket; return whether the KDC issued it."""
        command = ["kinit", "-c", str(self.tickets), "-k", "-t", str(self.keytab), USER]
        return subprocess.run(command, env=self._environment, capture_output=True, check=False).returncode == 0

    def build_auth(self) -> AuthBase:
        """Return the authentication of HTTP requests of this process with the user's ticket."""
        import gssapi
        from requests_gssapi import HTTPSPNEGOAuth

        os.environ.update(self.environment)
        auth: AuthBase = HTTPSPNEGOAuth(creds=gssapi.Credentials(usage="initiate", store={"ccache": str(self.tickets)}))
        return auth

    def build_properties(self) -> dict[str, Properties]:
        """Return Hadoop's properties for Kerberos, by site."""
        http = "hadoop.http"
        return {
            "core-site": {
                "hadoop.security.authentication": "kerberos",
                "hadoop.security.authorization": "true",
                "hadoop.security.auth_to_local": f"RULE:[2:$1@$0](.*@{REALM})s/.*/{USER}/\nDEFAULT",
                "hadoop.security.token.service.use_ip": "false",
                f"{http}.filter.initializers": "org.apache.hadoop.security.AuthenticationFilterInitializer",
                f"{http}.authentication.type": "kerberos",
                f"{http}.authentication.simple.anonymous.allowed": "false",
                f"{http}.authentication.kerberos.principal": _SPNEGO,
                f"{http}.authentication.kerberos.keytab": self.keytab,
                f"{http}.authentication.signature.secret.file": self.home / "signature",
            },
            "hdfs-site": {
                **_build_principal("dfs.namenode", "hdfs", self.keytab, "keytab.file", "kerberos.principal"),
                **_build_principal("dfs.datanode", "hdfs", self.keytab, "keytab.file", "kerberos.principal"),
                "dfs.namenode.kerberos.internal.spnego.principal": _SPNEGO,
                "dfs.web.authentication.kerberos.principal": _SPNEGO,
                "dfs.web.authentication.kerberos.keytab": self.keytab,
                "dfs.block.access.token.enable": "true",
                "dfs.data.transfer.protection": "authentication",
                # A DataNode otherwise requires that its pages are on a port below 1024, or encrypted.
                "ignore.secure.ports.for.testing": "true",
            },
            "yarn-site": {
                **_build_principal("yarn.resourcemanager", "yarn", self.keytab, "keytab", "principal"),
                **_build_principal("yarn.nodemanager", "yarn", self.keytab, "keytab", "principal"),
                "yarn.resourcemanager.webapp.spnego-principal": _SPNEGO,
                "yarn.resourcemanager.webapp.spnego-keytab-file": self.keytab,
                "yarn.nodemanager.webapp.spnego-principal": _SPNEGO,
                "yarn.nodemanager.webapp.spnego-keytab-file": self.keytab,
                # For containers; on other clusters, nodes have an /etc/krb5.conf.
                **{f"yarn.nodemanager.admin-env.{name}": value for name, value in self.environment.items()},
                # Reading logs as their owner needs Hadoop's native library, which is in no jar.
                "yarn.log-aggregation-enable": "false",
            },
        }

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "KRB5_KDC_PROFILE": f"{self.home}/kdc.conf", "PATH": _PATH}

    def _run(self, *command: str) -> None:
        process = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if process.returncode:
            raise SystemExit(f"{command[0]}: {process.stderr.strip()}")


def _build_principal(daemon: str, service: str, keytab: Path, key: str, principal: str) -> Properties:
    return {f"{daemon}.{principal}": f"{service}/localhost@{REALM}", f"{daemon}.{key}": keytab}


_CLIENT = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 localhost = {realm}
"""
_SERVER = """[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {home}/principal
  key_stash_file = {home}/stash
 }}
"""
