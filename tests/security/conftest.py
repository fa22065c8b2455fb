"""The fixtures of the trainer's tests that are attacked here."""

from tests.trainer.conftest import batches
from tests.trainer.strategies.conftest import pair

__all__ = ["batches", "pair"]
