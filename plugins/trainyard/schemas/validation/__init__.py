"""What values of options and documents may be, and how an error says what to write instead."""
