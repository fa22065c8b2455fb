"""Triggers: wait without occupying a worker slot, and watch what assets depend on."""

from trainyard.triggers.application_end import ApplicationEndTrigger
from trainyard.triggers.champion import ChampionTrigger
from trainyard.triggers.dataset import DatasetTrigger

__all__ = ["ApplicationEndTrigger", "ChampionTrigger", "DatasetTrigger"]
