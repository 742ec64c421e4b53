"""The sections of ``config``, by what they decide."""
