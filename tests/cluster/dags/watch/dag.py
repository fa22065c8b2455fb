"""A DAG that runs for each new version of a dataset, whoever writes it, and returns its number."""

from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from trainyard.triggers import DatasetTrigger

DATASET = Asset("watched", watchers=[AssetWatcher(name="watched", trigger=DatasetTrigger("watched", poll=1.0))])

with DAG("watch", schedule=[DATASET]):

    @task
    def versions(triggering_asset_events: Any = None) -> list[int]:
        return [event.extra["payload"]["version"] for event in triggering_asset_events[DATASET]]

    versions()
