"""Python's search for cycles of garbage, held off while many objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Make no search for garbage inside: among some 100,000 records that live on, it takes as long as the work.

    What is garbage at the end is found by the next search.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
