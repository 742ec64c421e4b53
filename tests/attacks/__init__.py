"""Attacks on the commands and the service, in groups, and a table of what held: `make test-attacks`.

Without ATTACKS=full each group tries a few of its attacks only, as CI does.
"""
