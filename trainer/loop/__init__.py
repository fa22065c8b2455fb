"""The training loop: what happens in each step and epoch, and how long it takes."""
