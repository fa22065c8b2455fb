"""The training loop: what happens in each step and epoch."""
