"""Airflow operators for pipelines that prepare data on Spark and train on a gang of ranks."""

__version__ = "0.1.0"
