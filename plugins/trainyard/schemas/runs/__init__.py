"""What does a run write, while it goes on and at its end?"""
