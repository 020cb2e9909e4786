"""The configuration check inside a training: what the first micro-steps begin with, put into a pack."""
