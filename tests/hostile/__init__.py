"""Inputs that a stranger may have made: files, names and folders, each small, and what must hold of every command."""
