"""msprobe tells where two neural-network trainings part ways, and why.

Importing this package loads nothing but itself: the tools live in sub-packages and are imported where they
are used (``from msprobe.pytorch import PrecisionDebugger``).
"""

from __future__ import annotations

# The one place of the version: the build and `msprobe --version` read it here.
__version__ = "0.1.0"

__all__ = ["__version__"]
