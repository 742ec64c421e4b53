"""Speed and memory, one module for each suite, run by `python -m clrec_tf.benchmark`."""
