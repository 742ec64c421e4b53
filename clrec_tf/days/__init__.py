"""One day after the other: prepare, train on from yesterday, compare, publish, and the history of it."""
