"""Scoring: apply a model to the rows of a Spark task."""
