"""Data: in which order are rows read, and how do they become tensors?"""
