"""The contract of a prepared data folder, and its readers: batches to train on, the catalogue, users held out."""
