"""Preflight: check a whole DAG against the cluster before its first stage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperator

from trainyard.checks.preflight import check_dag
from trainyard.compat import AirflowException
from trainyard.errors import TrainyardError
from trainyard.jobs.dry_run import plan_dag
from trainyard.planning.finding import as_text

if TYPE_CHECKING:
    from airflow.sdk import Context


class PreflightOperator(BaseOperator):  # type: ignore[misc]
    """Fail with every problem that a stage of this DAG would meet, each with its fix.

    Put it upstream of the first stage. It checks queues, node labels, memory, GPUs and limits against the cluster,
    writes a file to the storage and removes it, and imports the jobs' Python modules on the nodes. What may not fit is
    logged.
    """

    ui_color = "#e8ead8"

    def execute(self, context: Context) -> None:
        """Log the table of findings. Raises AirflowException with all problems."""
        try:
            findings = check_dag(plan_dag(self.dag, dict(context["params"])))
        except TrainyardError as error:
            raise AirflowException(str(error)) from None
        for line in as_text(findings).splitlines():
            self.log.info(line)
        if problems := [finding.problem for finding in findings if finding.problem]:
            raise AirflowException("\n".join(problems))
