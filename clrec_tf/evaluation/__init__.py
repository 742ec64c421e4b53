"""Ranking and debiasing metrics and the protocols they are computed under."""
