"""``OverFlowCheck``: the first bad value over all ranks of a dump, as a class."""

from __future__ import annotations

from msprobe.nan_analyze.analyzer import NanAnalyzer

__all__ = ["OverFlowCheck"]


class OverFlowCheck(NanAnalyzer):
    """The same as :class:`msprobe.nan_analyze.analyzer.NanAnalyzer`, under its newer name."""
