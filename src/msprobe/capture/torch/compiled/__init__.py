"""Compiled regions, and what makes graphs of a program: both run as if nothing were recorded."""
