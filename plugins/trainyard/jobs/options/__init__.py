"""What may be written in an operator, and is it right?"""
