"""Diagnosis: why did an application fail, and what should the user change? Pure functions."""
