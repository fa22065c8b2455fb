"""How are gradients averaged while the backward pass goes on?"""
