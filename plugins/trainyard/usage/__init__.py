"""Usage: which resources did applications allocate, and how much of them was busy?"""
