"""Losses as pure functions of scores and vectors: one function for each equation."""
