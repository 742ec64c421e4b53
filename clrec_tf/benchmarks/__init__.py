"""Measurements that a person can repeat: one module per suite, run by `python -m clrec_tf.benchmark`."""
