"""Formats: how is a trained model written for other systems? One format a file."""
