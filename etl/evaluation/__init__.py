"""Evaluation: how do metrics come from the rows of many tasks?"""
