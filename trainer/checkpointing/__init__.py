"""Checkpointing: how is the state of a training saved and restored?"""
