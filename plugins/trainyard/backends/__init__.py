"""Backends: how is an application submitted, watched and ended on each kind of cluster?"""
