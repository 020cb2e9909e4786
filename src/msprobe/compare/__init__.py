"""Two dumps, record by record: which answer to each other, and how far they are apart.

This room has the name of a function that users call: ``msprobe.compare(candidate, reference)``. Python keeps one
attribute for both, so the module can be called; what that does stands in :func:`msprobe.results.compare`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """A module that is also the function of its name."""

    def __call__(self, candidate: Any, reference: Any, **settings: Any) -> Any:
        """Say where two recorded trainings part, as ``msprobe compare CANDIDATE REFERENCE`` does.

        The settings are those of :func:`msprobe.results.compare`.
        """
        import importlib

        return importlib.import_module("msprobe.results").compare(candidate, reference, **settings)


sys.modules[__name__].__class__ = _CallableModule
