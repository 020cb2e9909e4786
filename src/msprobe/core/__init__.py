"""Import names that users of earlier tools know; nothing but re-exports, made when they are asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe.diagnose.runs import compare_runs
    from msprobe.report.single_sheet import SingleComparator
    from msprobe.single_save import SingleSave

__all__ = ["SingleComparator", "SingleSave", "compare_runs"]

_HOMES = {
    "SingleComparator": "msprobe.report.single_sheet",
    "SingleSave": "msprobe.single_save",
    "compare_runs": "msprobe.diagnose.runs",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
