"""Checks of a deployment, which change nothing: what is there is compared with what the settings need."""
