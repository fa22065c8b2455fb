"""How are models combined, promoted to champions, and rolled back?"""
