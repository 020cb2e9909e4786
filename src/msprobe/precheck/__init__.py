"""One API at a time: rebuilt from a dump, run on the device under suspicion, and judged against a reference.

Everything here but the folders ``torch`` and ``mindspore`` works on files and numpy arrays alone.
"""
