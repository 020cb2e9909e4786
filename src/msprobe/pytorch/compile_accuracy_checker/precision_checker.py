"""Where scripts for 26.2 import it from."""

from __future__ import annotations

from msprobe.precheck.torch.compiled_modules import PrecisionChecker

__all__ = ["PrecisionChecker"]
