"""``from msprobe.mindspore.compare.ms_compare import ms_compare``."""

from __future__ import annotations

from msprobe.report.compare_mindspore import ms_compare

__all__ = ["ms_compare"]
