"""The parts of a configuration check, by the names that mindstudio-probe has for them."""

from __future__ import annotations

from msprobe.config_check.checker import CHECKERS

__all__ = ["CHECKERS"]
