"""What interrupts a loop, and how all workers learn of it at the same step."""
