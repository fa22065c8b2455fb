"""Train a model for each of two islands, each on a dataset of its own, at once."""

from pathlib import Path

from airflow.sdk import DAG, task_group

from trainyard.operators import ExportOperator, TrainOperator

SOURCE = {
    "path": Path(__file__).with_name("penguins.csv").as_uri(),
    "options": {"header": True, "inferSchema": True, "nullValue": "NA"},
}

with DAG("penguins_islands", schedule=None, doc_md=__doc__):

    @task_group
    def of_island(island: str) -> None:
        export = ExportOperator(
            task_id="export", prepare="penguins.prepare:of_island", prepare_params={"island": island}, source=SOURCE
        )
        TrainOperator(
            task_id="train", recipe="penguins.recipe:network", dataset=export.output, epochs=20, batch_size=32
        )

    of_island.expand(island=["Biscoe", "Dream"])
