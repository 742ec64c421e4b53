"""The proof that each loss learns what its formula says: small worlds whose exact optima are known."""
