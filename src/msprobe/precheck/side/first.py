"""The first lines of a script that reproduces a call, before it imports anything else.

A script lies in an output folder and is run anywhere: its own folder and the working directory, which Python puts in
front of the places of modules, may be a stranger's. What the user named in ``PYTHONPATH`` stays.
"""

# Without `from __future__ import annotations`: it imports a module, as any other import does.
from __future__ import annotations

import sys


def clean_places() -> None:
    """Take the script's folder and the working directory off the places of modules."""
    if "os" not in sys.modules:  # started with -S
        del sys.path[:1]
    import os

    named = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if place]
    file = os.path.abspath(globals().get("__file__") or "script.py")
    own = {os.getcwd(), os.path.realpath(os.getcwd()), os.path.dirname(file), os.path.dirname(os.path.realpath(file))}
    own |= {os.path.realpath(place) for place in own}
    own -= {os.path.realpath(place) for place in named} | {os.path.abspath(place) for place in named}
    # Python's own entry comes first, then those of PYTHONPATH, where an empty one is the working directory.
    count = 1 + os.environ.get("PYTHONPATH", "").count(os.pathsep) + 1
    kept = [place for place in sys.path[:count] if place and os.path.realpath(place) not in own]
    sys.path[:count] = kept


clean_places()
