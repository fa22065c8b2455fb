"""A DAG that runs whenever there is a new model of `compete`, and returns its weights."""

from typing import Any

from airflow.sdk import DAG, Asset, task

MODEL = Asset("compete/model")

with DAG("follow", schedule=[MODEL]):

    @task
    def models(triggering_asset_events: Any = None) -> list[str]:
        return [event.extra["weights_sha256"] for event in triggering_asset_events[MODEL]]

    models()
