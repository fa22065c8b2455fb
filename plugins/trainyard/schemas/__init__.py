"""Schemas: the documents that stages write and read, and the state of datasets in storage."""
