"""The exception names that existing ``except`` clauses use.

``except MsprobeException`` catches every error of msprobe, since all of them derive from it.
"""

from __future__ import annotations

from msprobe.errors import MsprobeError as MsprobeException
from msprobe.errors import PathError as FileCheckException
from msprobe.errors import ScopeError as ScopeException

__all__ = ["FileCheckException", "MsprobeException", "ScopeException"]
