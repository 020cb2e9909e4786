"""Calls of torch: how they are seen, what they are named, and their records."""
