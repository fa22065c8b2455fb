"""The documents that pass between the stages, and the storage they lie on."""
