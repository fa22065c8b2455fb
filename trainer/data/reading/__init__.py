"""How do the files of a split become arrays?"""
