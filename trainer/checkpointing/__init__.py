"""Checkpointing: save and restore the state of a training."""
