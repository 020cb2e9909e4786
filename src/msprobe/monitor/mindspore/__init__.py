"""The monitor in MindSpore's dynamic graph."""
