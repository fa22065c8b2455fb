"""Registers Trainyard with an Airflow that has this folder as its plugins folder."""

from trainyard.plugin import TrainyardPlugin

__all__ = ["TrainyardPlugin"]
