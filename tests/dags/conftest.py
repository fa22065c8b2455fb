"""An Airflow home for the tests that parse DAGs in the process of pytest."""

import os
import tempfile

_HOME = tempfile.TemporaryDirectory(prefix="trainyard-tests-", ignore_cleanup_errors=True)
os.environ.setdefault("AIRFLOW_HOME", f"{_HOME.name}/airflow")
