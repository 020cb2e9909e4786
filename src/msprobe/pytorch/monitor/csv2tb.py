"""The import name that scripts know: ``from msprobe.pytorch.monitor.csv2tb import csv2tensorboard_by_step``."""

from __future__ import annotations

from msprobe.monitor.convert.csv_to_tensorboard import csv2tensorboard_by_step

__all__ = ["csv2tensorboard_by_step"]
