"""What an installed Trainyard tells Airflow of itself."""

from __future__ import annotations

from typing import Any

from trainyard.links import LINKS


def get_provider_info() -> dict[str, Any]:
    """Airflow's provider metadata."""
    return {
        "package-name": "airflow-trainyard",
        "name": "Trainyard",
        "description": "Pipelines that prepare data on Spark and train on a gang of ranks.",
        "connection-types": [
            {
                "hook-class-name": "trainyard.connections.TrainyardHook",
                "hook-name": "Trainyard",
                "connection-type": "trainyard",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "schema", "login", "password", "port"],
                    "relabeling": {},
                    "placeholders": {"extra": '{"storage": "file:///data/trainyard"}'},
                },
                "conn-fields": {
                    "storage": {
                        "label": "Storage",
                        "description": "URI below which batches, models and runs are stored",
                        "schema": {"type": ["string", "null"]},
                    },
                    "webhdfs": {
                        "label": "WebHDFS connection",
                        "description": "Connection by which Airflow reaches HDFS, where only HTTP is open to it",
                        "schema": {"type": ["string", "null"]},
                    },
                },
            }
        ],
        "extra-links": [f"{type(link).__module__}.{type(link).__qualname__}" for link in LINKS],
    }
