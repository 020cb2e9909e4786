"""Where MindSpore keeps what runs programs; up to 2.8 in the second place."""

from __future__ import annotations

import importlib
from typing import Any

_PLACES = ("mindspore.graph.api", "mindspore.common.api")


def jit_executor_class() -> Any:
    """The class whose objects compile and run a function; None if this MindSpore has it elsewhere."""
    executor = _find("_JitExecutor")
    return executor if isinstance(executor, type) else None


def compiling_classes() -> list[type]:
    """The classes whose ``compile`` compiles functions and cells."""
    classes = (_find(name) for name in ("_JitExecutor", "_CellGraphExecutor"))
    return [kind for kind in classes if isinstance(kind, type)]


def pynative_executor() -> Any:
    """What runs the dynamic graph; None if this MindSpore has it elsewhere."""
    return _find("_pynative_executor")


def wait_for_all() -> None:
    """Wait until everything that was begun is done."""
    sync = getattr(pynative_executor(), "sync", None)
    if callable(sync):
        sync()


def _find(name: str) -> Any:
    for place in _PLACES:
        try:
            return getattr(importlib.import_module(place), name)
        except (ImportError, AttributeError):
            continue
    return None
