"""Click logs in, a data folder of TFRecords with its manifest out."""
