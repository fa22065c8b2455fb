"""Operator links: to the report of a run, and to the pages of its application on YARN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink
from airflow.sdk.bases.xcom import BaseXCom

from trainyard.files import uris

PAGES = "/trainyard"


class PushedLink(BaseOperatorLink):  # type: ignore[misc]
    """A link whose address the task pushes to XCom under KEY as soon as it is known."""

    KEY: ClassVar[str]

    @property
    def xcom_key(self) -> str:
        """The XCom key of the address."""
        return self.KEY

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the address, "" until it is pushed."""
        return str(BaseXCom.get_value(ti_key=ti_key, key=self.KEY) or "")


class ReportLink(PushedLink):
    """The report of the run."""

    KEY = "trainyard_report"
    name = "Report"


class ApplicationLink(PushedLink):
    """The ResourceManager's page of the application."""

    KEY = "trainyard_application"
    name = "YARN application"


class DriverLogLink(PushedLink):
    """The log of the driver's container, as long as its node keeps it."""

    KEY = "trainyard_driver_log"
    name = "Driver log"


class SparkLink(PushedLink):
    """Spark's UI, or its history server after the end."""

    KEY = "trainyard_spark"
    name = "Spark UI"


LINKS: tuple[PushedLink, ...] = (ReportLink(), ApplicationLink(), DriverLogLink(), SparkLink())


def airflow_url() -> str:
    """Return the base URL of this Airflow, which identifies it; "" if none is configured."""
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")


def in_airflow(path: str) -> str:
    """Return a path of Airflow's UI, below the path of its base URL."""
    return f"{urlsplit(airflow_url()).path}{path}"


def report_page(base_url: str, conn_id: str, dag_id: str, run_id: str) -> str:
    """Return the address of the page with a run's report, on the Airflow at `base_url`."""
    run = urlencode({"conn_id": conn_id, "dag_id": dag_id, "run_id": run_id})
    return f"{base_url.rstrip('/')}{PAGES}/report?{run}"


def report_uri(directory: str) -> str:
    """Return the URI of the report of the run in `directory`."""
    return uris.join(directory, "report.html")


def push_report_link(ti: Any, conn_id: str, dag_id: str, run_id: str) -> None:
    """Push the address of the report, and empty ones for the other links: for a missing one Airflow logs an error."""
    page = report_page(airflow_url(), conn_id, dag_id, run_id)
    push_addresses(ti, {link.KEY: page if link.KEY == ReportLink.KEY else "" for link in LINKS})


def push_addresses(ti: Any, addresses: Mapping[str, str]) -> None:
    """Push addresses to XCom, by the keys of their links."""
    for key, address in addresses.items():
        ti.xcom_push(key=key, value=address)
