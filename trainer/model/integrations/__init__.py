"""Lightning and transformers: their models, data modules and trainers with Trainyard's datasets."""
