"""Links from a task in Airflow's pages: to the report of its run, and to its application's pages on YARN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink
from airflow.sdk.bases.xcom import BaseXCom

from trainyard import storage

PAGES = "/trainyard"


class PushedLink(BaseOperatorLink):  # type: ignore[misc]
    """A link whose address the task pushes under KEY as soon as it is known; empty until then."""

    KEY: ClassVar[str]

    @property
    def xcom_key(self) -> str:
        """Where Airflow looks for the address."""
        return self.KEY

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The page's address."""
        return str(BaseXCom.get_value(ti_key=ti_key, key=self.KEY) or "")


class ReportLink(PushedLink):
    """Leads to the report of the run."""

    KEY = "trainyard_report"
    name = "Report"


class ApplicationLink(PushedLink):
    """Leads to the ResourceManager's page of the application."""

    KEY = "trainyard_application"
    name = "YARN application"


class DriverLogLink(PushedLink):
    """Leads to what the driver's container writes, while its node keeps it."""

    KEY = "trainyard_driver_log"
    name = "Driver log"


class SparkLink(PushedLink):
    """Leads to Spark's own pages, or to its history when it has ended."""

    KEY = "trainyard_spark"
    name = "Spark UI"


LINKS: tuple[PushedLink, ...] = (ReportLink(), ApplicationLink(), DriverLogLink(), SparkLink())


def in_airflow(path: str) -> str:
    """A path of Airflow's, below that of the address it is reached by."""
    return f"{urlsplit(conf.get('api', 'base_url', fallback='')).path.rstrip('/')}{path}"


def report_page(base_url: str, conn_id: str, dag_id: str, run_id: str) -> str:
    """Address of the page that shows a run's report, on the Airflow at `base_url`."""
    run = urlencode({"conn_id": conn_id, "dag_id": dag_id, "run_id": run_id})
    return f"{base_url.rstrip('/')}{PAGES}/report?{run}"


def report_uri(directory: str) -> str:
    """Where the report of the run in `directory` lies."""
    return storage.join(directory, "report.html")


def push_report_link(ti: Any, conn_id: str, dag_id: str, run_id: str) -> None:
    """Push the address of the report, and empty ones for the other links: for a missing one Airflow logs an error."""
    page = report_page(conf.get("api", "base_url", fallback=""), conn_id, dag_id, run_id)
    push_addresses(ti, {link.KEY: page if link.KEY == ReportLink.KEY else "" for link in LINKS})


def push_addresses(ti: Any, addresses: Mapping[str, str]) -> None:
    """Push addresses to XCom, by the keys of their links."""
    for key, address in addresses.items():
        ti.xcom_push(key=key, value=address)
