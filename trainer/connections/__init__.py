"""How the workers of a group connect to the driver and to each other, and prove that they belong to it."""
