"""Distributed PyTorch training on a Spark and YARN cluster, orchestrated by Airflow."""

__version__ = "0.2.0"
