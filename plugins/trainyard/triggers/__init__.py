"""Triggers: wait for YARN without occupying a worker slot."""
