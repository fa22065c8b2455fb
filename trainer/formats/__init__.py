"""Formats: write a trained model for other systems, one format a file."""
