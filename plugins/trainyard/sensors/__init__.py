"""Sensors: wait until the cluster has room for an application."""

from trainyard.sensors.capacity import CapacitySensor

__all__ = ["CapacitySensor"]
