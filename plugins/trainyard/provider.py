"""Airflow's provider metadata.

Airflow reads it while its own configuration is being initialized, so this module imports nothing of Airflow.
"""

from __future__ import annotations

from typing import Any

LINKS = ("ReportLink", "ApplicationLink", "DriverLogLink", "SparkLink")


NAME = "Trainyard"
OPERATORS = (
    "ensemble",
    "evaluate",
    "export",
    "featurize",
    "predict",
    "preflight",
    "promote",
    "reap",
    "script",
    "train",
)
SENSORS = ("application", "capacity", "champion", "dataset")
HOOKS = ("trainyard", "yarn")
TRIGGERS = ("application", "application_end", "capacity", "champion", "dataset")


def _modules(folder: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{"integration-name": NAME, "python-modules": [f"trainyard.{folder}.{name}" for name in names]}]


def get_provider_info() -> dict[str, Any]:
    """Return the provider metadata, in the form of Airflow's provider info schema."""
    return {
        "package-name": "airflow-trainyard",
        "name": NAME,
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
                    "environment": {
                        "label": "Environment",
                        "description": "URI of a packed environment, from trainyard environment pack",
                        "schema": {"type": ["string", "null"]},
                    },
                    "preflight": {
                        "label": "Preflight",
                        "description": "Check of applications before submission to YARN: strict, warn or off",
                        "schema": {"type": ["string", "null"]},
                    },
                    "profiles": {
                        "label": "Profiles",
                        "description": "Queue, node label, GPUs and memory by names, which tasks refer to by profile=",
                        "schema": {"type": ["object", "null"]},
                    },
                },
            },
            {
                "hook-class-name": "trainyard.hooks.yarn.YarnHook",
                "hook-name": "YARN",
                "connection-type": "yarn",
                "ui-field-behaviour": {
                    "hidden-fields": [],
                    "relabeling": {"host": "ResourceManagers", "schema": "http or https"},
                    "placeholders": {"host": "rm1.example.com,rm2.example.com", "port": "8088", "schema": "http"},
                },
                "conn-fields": {
                    "auth": {
                        "label": "Authentication",
                        "description": "simple (the login as user.name), basic (login and password) or kerberos",
                        "schema": {"type": ["string", "null"]},
                    },
                    "gateway": {
                        "label": "Gateway path",
                        "description": "Path of the ResourceManager behind Knox: /gateway/default/resourcemanager",
                        "schema": {"type": ["string", "null"]},
                    },
                    "ca_file": {
                        "label": "CA file",
                        "description": "Certificates that are trusted; by default those of the system",
                        "schema": {"type": ["string", "null"]},
                    },
                },
            },
        ],
        "integrations": [{"integration-name": NAME, "tags": ["software"]}],
        "operators": _modules("operators", OPERATORS),
        "sensors": _modules("sensors", SENSORS),
        "hooks": _modules("hooks", HOOKS),
        "triggers": _modules("triggers", TRIGGERS),
        "config": {
            "trainyard": {
                "description": "Settings of Trainyard.",
                "options": {
                    "preflight": {
                        "description": "How applications are checked before they are submitted to YARN: strict, warn "
                        "or off. The connection and the operator override it.",
                        "version_added": None,
                        "type": "string",
                        "example": None,
                        "default": "strict",
                    },
                    "connections": {
                        "description": "Connections of type trainyard that the pages show beside those of the "
                        "environment and of the database: ids, separated by commas. Those of another secrets backend "
                        "cannot be listed.",
                        "version_added": None,
                        "type": "string",
                        "example": "trainyard_default,trainyard_lab",
                        "default": "",
                    },
                    "archive_owners": {
                        "description": "Users, separated by commas, whose archives of Python, Java and Spark "
                        "applications on YARN use, beside those of the submitting user.",
                        "version_added": None,
                        "type": "string",
                        "example": "hdfs,admin",
                        "default": "",
                    },
                    "yarn_conn_id": {
                        "description": "The connection of type yarn by which the ResourceManager is asked. By default "
                        "the address is that in HADOOP_CONF_DIR.",
                        "version_added": None,
                        "type": "string",
                        "example": "yarn_default",
                        "default": "",
                    },
                },
            }
        },
        "extra-links": [f"trainyard.links.{name}" for name in LINKS],
    }
