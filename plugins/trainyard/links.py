"""The link from a task in Airflow's pages to the report of its run."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink
from airflow.sdk.bases.xcom import BaseXCom

from trainyard.contract import storage

PAGES = "/trainyard"


class ReportLink(BaseOperatorLink):  # type: ignore[misc]
    """Leads to the report; each task pushes the address under KEY before its application starts."""

    KEY: ClassVar[str] = "trainyard_report"
    name = "Report"
    xcom_key = KEY

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The page's address, empty while the task has not started."""
        return str(BaseXCom.get_value(ti_key=ti_key, key=self.KEY) or "")


def report_page(base_url: str, conn_id: str, dag_id: str, run_id: str) -> str:
    """Address of the page that shows a run's report, on the Airflow at `base_url`."""
    steps = "/".join(quote(step, safe="") for step in (conn_id, dag_id, run_id))
    return f"{base_url.rstrip('/')}{PAGES}/reports/{steps}"


def report_uri(directory: str) -> str:
    """Where the report of the run in `directory` lies."""
    return storage.join(directory, "report.html")
