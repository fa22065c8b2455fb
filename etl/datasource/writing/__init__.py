"""How do rows become the files, statistics and manifest of a dataset?"""
