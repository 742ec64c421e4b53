"""Click logs in, TFRecords with a manifest out, batches of windows to the model."""
