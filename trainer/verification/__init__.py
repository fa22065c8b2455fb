"""Verification: does a model that was written compute what the trained one does?"""
