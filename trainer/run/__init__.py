"""What every training loop needs, that of a recipe and one of the user's own: `Run`, and what both share."""
