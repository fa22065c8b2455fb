"""The link from a task in Airflow's pages to the report of its run."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.sdk import BaseOperatorLink
from airflow.sdk.bases.xcom import BaseXCom

from trainyard.contract import storage


class ReportLink(BaseOperatorLink):  # type: ignore[misc]
    """Shows where the report lies; each task pushes it under KEY before its application starts."""

    KEY: ClassVar[str] = "trainyard_report"
    name = "Report"
    xcom_key = KEY

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """The report's URI, empty while the task has not started."""
        return str(BaseXCom.get_value(ti_key=ti_key, key=self.KEY) or "")


def report_uri(directory: str) -> str:
    """Where the report of the run in `directory` lies."""
    return storage.join(directory, "report.html")
