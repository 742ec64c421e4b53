"""Models: encode, enqueue, loss."""
