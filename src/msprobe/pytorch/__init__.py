"""The names that scripts import: ``from msprobe.pytorch import PrecisionDebugger``."""

from __future__ import annotations

from msprobe.capture.torch.debugger import PrecisionDebugger

__all__ = ["PrecisionDebugger"]
