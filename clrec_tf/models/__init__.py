"""The two towers, and what is made of a trained one: vectors, and scores at every setting of the dial."""
