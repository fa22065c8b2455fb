"""What is fitted on the training rows, and applied the same everywhere: categories, labels, and states of users."""
