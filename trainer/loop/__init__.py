"""The loop: what happens in each step and epoch, and where does the time go?"""
