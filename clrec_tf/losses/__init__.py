"""Losses as pure functions, one per equation."""
