"""Where negatives come from: the first-in first-out queue of clicked items."""
