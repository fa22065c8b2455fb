"""The process that Spark forks Python workers from where a model is applied (`spark.python.daemon.module`).

It imports once what every worker needs, as `trainer/group/daemon.py` does for worker groups.
"""

import gc
from contextlib import suppress

import pandas  # noqa: F401  pyarrow imports it with the first array
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import trainyard.etl.evaluation.evaluate
import trainyard.etl.evaluation.families
import trainyard.etl.evaluation.scorer
import trainyard.etl.jobs.featurize
import trainyard.etl.jobs.predict
import trainyard.etl.scoring.outputs  # noqa: F401

with suppress(ImportError):  # most recipes import it; a prediction does not need it
    import torchmetrics  # noqa: F401

if __name__ == "__main__":
    gc.freeze()
    manager()
