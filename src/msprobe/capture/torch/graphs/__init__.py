"""Graphs that a program captures on a device and replays: what runs in them is recorded behind each replay."""
