"""Schemas: the documents that stages write and read."""
