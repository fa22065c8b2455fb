"""What does an export read, and which rows are in which split?"""
