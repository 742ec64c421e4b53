"""Measurements and proofs that a person can repeat: above everything, and imported by commands alone."""
