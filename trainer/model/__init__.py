"""Models: what does a user declare, and what is stored of a trained model?"""
