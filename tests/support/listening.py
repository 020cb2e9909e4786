"""A debugger with listeners, of any framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def with_listeners(debugger: Any, place: Path, *listening: Any, **settings: Any) -> Any:
    """A new ``debugger`` that dumps statistics of modules and calls, and is listened to."""
    debugger.reset()
    made = debugger(dump_path=str(place), **{"task": "statistics", "level": "mix", **settings})
    for listener in listening:
        made.add(listener)
    return made
