"""Hooks: what Airflow connections say about storage, Spark and HDFS."""

from trainyard.hooks.trainyard import TrainyardHook

__all__ = ["TrainyardHook"]
