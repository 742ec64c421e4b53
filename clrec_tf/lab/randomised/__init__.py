"""Training on self-selected ratings, evaluation on ratings of items drawn at random."""
