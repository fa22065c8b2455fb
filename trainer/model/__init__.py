"""Models: what a user declares, and what is stored of a trained model."""
