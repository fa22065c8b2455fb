"""Airflow's provider metadata.

Airflow reads it while its own configuration is being initialized, so this module imports nothing of Airflow.
"""

from __future__ import annotations

from typing import Any

LINKS = ("ReportLink", "ApplicationLink", "DriverLogLink", "SparkLink")


def get_provider_info() -> dict[str, Any]:
    """Return the provider metadata, in the form of Airflow's provider info schema."""
    return {
        "package-name": "airflow-trainyard",
        "name": "Trainyard",
        "description": "Distributed PyTorch training on a Spark and YARN cluster, orchestrated by Airflow.",
        "connection-types": [
            {
                "hook-class-name": "trainyard.hooks.trainyard.TrainyardHook",
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
                        "description": "URI below which datasets, models and runs are stored",
                        "schema": {"type": ["string", "null"]},
                    },
                    "shared": {
                        "label": "Shared directory",
                        "description": "Whether every node of the cluster mounts a file:// storage at the same path",
                        "schema": {"type": ["boolean", "null"]},
                    },
                    "webhdfs": {
                        "label": "WebHDFS connection",
                        "description": "WebHDFS connection, for an Airflow that reaches the cluster by HTTP only",
                        "schema": {"type": ["string", "null"]},
                    },
                    "preflight": {
                        "label": "Preflight",
                        "description": "Check of applications before submission to YARN: strict, warn or off",
                        "schema": {"type": ["string", "null"]},
                    },
                },
            }
        ],
        "extra-links": [f"trainyard.links.{name}" for name in LINKS],
    }
