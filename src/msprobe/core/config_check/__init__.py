"""The import name of the configuration check inside a training."""

from __future__ import annotations

from msprobe.config_check.checker import CHECKERS, ConfigChecker

__all__ = ["CHECKERS", "ConfigChecker"]
