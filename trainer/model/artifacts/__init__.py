"""How is a trained model written to storage, and loaded?"""
