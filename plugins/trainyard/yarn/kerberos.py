"""Kerberos, where a cluster asks for it: who the ticket says one is, and whether containers can use their tokens.

Airflow's side has a ticket, which `airflow kerberos` or `kinit` keeps. Containers have none: Spark and YARN hand them
delegation tokens, by which hdfs-native reads and writes HDFS there.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from requests.auth import AuthBase

from trainyard.errors import TrainyardError


def ticket() -> tuple[str, AuthBase]:
    """The user that the ticket names, and how HTTP requests show it (SPNEGO).

    Raises TrainyardError when there is no valid ticket, or no library to show it by.
    """
    try:
        import gssapi
        from requests_gssapi import HTTPSPNEGOAuth
    except ImportError:
        raise TrainyardError(
            "the cluster asks for Kerberos, says core-site.xml; install airflow-trainyard[kerberos] where Airflow runs."
        ) from None
    try:
        principal = str(gssapi.Credentials(usage="initiate").inquire(lifetime=True).name)
    except gssapi.exceptions.GSSError as error:
        raise TrainyardError(
            f"the cluster asks for Kerberos, and there is no valid ticket: {error.gen_message()}. Keep one where "
            "Airflow runs, by `airflow kerberos` or `kinit`; KRB5CCNAME says where it lies."
        ) from None
    return primary(principal), HTTPSPNEGOAuth()


def asked_for(core: Mapping[str, str]) -> bool:
    """Whether HDFS and YARN know who asks by Kerberos, by the client's core-site.xml."""
    return core.get("hadoop.security.authentication", "simple") == "kerberos"


def primary(principal: str) -> str:
    """The user that a cluster takes a principal for: `me` of `me@REALM` and of `me/host@REALM`."""
    return principal.partition("@")[0].partition("/")[0]


def unusable_token(core: Mapping[str, str], uri: str) -> str:
    """Why a container could not use its token for the HDFS of `uri`, by the client's core-site.xml; empty if it can.

    hdfs-native looks for the token under the NameNode's name as the URI has it, and Hadoop keeps it under its address
    unless told otherwise. A pair with high availability goes by the name of both, and has not this trouble.
    """
    place = urlsplit(uri)
    if place.scheme != "hdfs" or place.port is None or _is_address(place.hostname or ""):
        return ""
    if not asked_for(core):
        return ""
    if core.get("hadoop.security.token.service.use_ip", "true").lower() == "false":
        return ""
    return (
        f"{place.scheme}://{place.netloc} is one NameNode that asks for Kerberos, and containers would not find their "
        "token for it by that name. Set hadoop.security.token.service.use_ip to false in core-site.xml where Airflow "
        "runs, or write the NameNode's IP address in the storage."
    )


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
