"""Where this process finds modules, and which of these places nobody has named."""

from __future__ import annotations

import os
import sys

PATHS = "PYTHONPATH"


def module_places() -> list[str]:
    """The places of modules without the working directory, unless ``PYTHONPATH`` names it.

    An empty entry there is the working directory for Python, and names none.
    """
    here = _working_directory()
    named = {os.path.realpath(place) for place in os.environ.get(PATHS, "").split(os.pathsep) if place}
    return [place for place in sys.path if place and (os.path.realpath(place) != here or here in named)]


def leave_working_directory() -> None:
    """Take the working directory off the first places of modules, where an empty entry of ``PYTHONPATH`` has put it."""
    given = os.environ.get(PATHS)
    if given and "" in given.split(os.pathsep):
        count = 1 + given.count(os.pathsep) + 1  # the entry of the script comes first
        kept = set(module_places())
        sys.path[:count] = [place for place in sys.path[:count] if place in kept]


def _working_directory() -> str:
    try:
        return os.path.realpath(os.getcwd())
    except OSError:  # it was removed
        return ""
