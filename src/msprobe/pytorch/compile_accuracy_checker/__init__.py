"""``from msprobe.pytorch.compile_accuracy_checker import PrecisionChecker``."""

from __future__ import annotations

from msprobe.precheck.torch.compiled_modules import PrecisionChecker

__all__ = ["PrecisionChecker"]
