"""Planning: what would be submitted, how large, and where? Pure functions, but for the code archive and the jars."""
