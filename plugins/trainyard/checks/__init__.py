"""Checks: does the installation work, and does a DAG fit the cluster?"""
