"""The proof that each loss learns what its formula says, in tables whose exact optima are known."""
