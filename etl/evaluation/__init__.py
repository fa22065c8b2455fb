"""Evaluation: compute metrics of models over the rows of many Spark tasks."""
