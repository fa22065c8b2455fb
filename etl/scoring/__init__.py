"""Scoring: how is a model applied to the rows of a Spark task?"""
