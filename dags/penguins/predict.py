"""Predict for all penguins with complete sizes whenever there is a new champion.

Scheduled by the asset `penguins/champion`, which the DAG `penguins_sweep` updates.
"""

from pathlib import Path

from airflow.sdk import DAG, Asset

from trainyard.operators import PredictOperator

with DAG("penguins_predict", schedule=[Asset("penguins/champion")], doc_md=__doc__):
    PredictOperator(
        task_id="predict",
        model="penguins/champion",
        source=Path(__file__).with_name("penguins.csv").as_uri(),
        options={"header": True, "inferSchema": True, "nullValue": "NA"},
        prepare="penguins.prepare:inputs",
        keys=["penguin"],
        output="penguins/predictions_of_champion",
    )
