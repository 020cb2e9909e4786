"""What one dump alone says, without a second run: each check looks for one kind of fault."""

from __future__ import annotations

from msprobe.diagnose.check.registry import CHECKS, Check
from msprobe.diagnose.check.run import CheckResult, check_run

__all__ = ["CHECKS", "Check", "CheckResult", "check_run"]
