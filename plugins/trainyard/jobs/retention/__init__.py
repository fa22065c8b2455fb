"""What may be removed from a storage root, by age and by reference, and how it is removed.

`inventory` lists what is stored, `usage` what is in use, `decision` decides, and `removal` removes.
"""
