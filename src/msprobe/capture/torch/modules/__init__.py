"""Modules of the user's models: which there are, how their passes are seen, and the records of these."""
