"""Hooks: what Airflow connections say about storage, Spark, YARN and HDFS."""

from trainyard.hooks.trainyard import TrainyardHook
from trainyard.hooks.yarn import YarnHook

__all__ = ["TrainyardHook", "YarnHook"]
