"""Sensors: wait until the cluster has room, an application has ended, or a dataset or champion has changed."""

from trainyard.sensors.application import ApplicationSensor
from trainyard.sensors.capacity import CapacitySensor
from trainyard.sensors.champion import ChampionSensor
from trainyard.sensors.dataset import DatasetSensor

__all__ = ["ApplicationSensor", "CapacitySensor", "ChampionSensor", "DatasetSensor"]
