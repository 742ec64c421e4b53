"""A published bundle at work: tower and index, from users to their items."""
