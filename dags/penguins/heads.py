"""Learn the species, the sex and the body mass of Palmer penguins with one network, which has a head for each."""

from pathlib import Path

from airflow.sdk import DAG

from trainyard.operators import EvaluateOperator, ExportOperator, TrainOperator

with DAG("penguins_heads", schedule=None, doc_md=__doc__):
    export = ExportOperator(
        task_id="export",
        prepare="penguins.prepare:measured",
        source={
            "path": Path(__file__).with_name("penguins.csv").as_uri(),
            "options": {"header": True, "inferSchema": True, "nullValue": "NA"},
        },
        label=["species", "sex"],
        nullable=["sex"],
    )
    train = TrainOperator(
        task_id="train",
        recipe="penguins.recipe:heads",
        dataset=export.output,
        epochs=60,
        batch_size=32,
    )
    EvaluateOperator(
        task_id="evaluate",
        model=train.output,
        metrics=["species/accuracy", "species/confusion_matrix", "sex/accuracy", "mass/mae"],
        slices=["species"],
    )
