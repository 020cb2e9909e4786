"""``TrainerMonitorV2`` under the import name of 26.2.0."""

from __future__ import annotations

from msprobe.monitor.v2.trainer import TrainerMonitorV2

__all__ = ["TrainerMonitorV2"]
