"""Kerberos: the user of the ticket, and whether containers can use their delegation tokens.

Airflow's processes have a ticket, which `airflow kerberos` or `kinit` renews. Containers have none: they get delegation
tokens from Spark and YARN, with which hdfs-native accesses HDFS.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from requests.auth import AuthBase

from trainyard.errors import TrainyardError, UnavailableError
from trainyard.files import hadoop_conf


def ticket() -> tuple[str, AuthBase]:
    """Return the user of the ticket, and the authentication of HTTP requests with it (SPNEGO).

    Raises:
        UnavailableError: There is no valid ticket.
        TrainyardError: `requests-gssapi` is not installed.
    """
    try:
        import gssapi
        from requests_gssapi import HTTPSPNEGOAuth
    except ImportError:
        raise TrainyardError(
            "core-site.xml requires Kerberos; install airflow-trainyard[kerberos] where Airflow runs."
        ) from None
    try:
        principal = str(gssapi.Credentials(usage="initiate").inquire(lifetime=True).name)
    except gssapi.exceptions.GSSError as error:
        raise UnavailableError(
            f"the cluster requires Kerberos, and there is no valid ticket: {error.gen_message()}. Get one where "
            "Airflow runs, with `airflow kerberos` or `kinit`; KRB5CCNAME is its location."
        ) from None
    return primary(principal), HTTPSPNEGOAuth()


def require_ticket(uri: str) -> None:
    """Raise TrainyardError if `uri` is on an HDFS that requires Kerberos, and there is no ticket."""
    if uri.startswith("hdfs://") and is_required(hadoop_conf.read_site("core-site.xml")):
        ticket()


def is_required(core: Mapping[str, str]) -> bool:
    """Return whether HDFS and YARN authenticate by Kerberos, according to the client's core-site.xml."""
    return core.get("hadoop.security.authentication", "simple") == "kerberos"


def primary(principal: str) -> str:
    """Return the user of a principal: `me` of `me@REALM` and of `me/host@REALM`."""
    return principal.partition("@")[0].partition("/")[0]


def unusable_token(core: Mapping[str, str], uri: str) -> str:
    """Return why a container could not use its token for the HDFS of `uri`, "" if it can.

    hdfs-native looks the token up by the NameNode's name in the URI, and Hadoop stores it by the NameNode's address
    unless `hadoop.security.token.service.use_ip` is false. A high-availability pair is stored by its logical name, so
    it is not affected.

    Args:
        core: The properties of the client's core-site.xml.
        uri: The URI of the storage.
    """
    location = urlsplit(uri)
    if location.scheme != "hdfs" or location.port is None or _is_address(location.hostname or ""):
        return ""
    if not is_required(core):
        return ""
    if core.get("hadoop.security.token.service.use_ip", "true").lower() == "false":
        return ""
    return (
        f"{location.scheme}://{location.netloc} is a single NameNode with Kerberos, and containers would not find "
        "their token for it by that name. Set hadoop.security.token.service.use_ip to false in core-site.xml where "
        "Airflow runs, or write the NameNode's IP address in the storage."
    )


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
