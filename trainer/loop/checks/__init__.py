"""What is checked before the first step: options, labels, and the output for some rows."""
