"""``NanAnalyzer``: the first bad value over all ranks of a dump, as a class."""

from __future__ import annotations

from msprobe.paths import StrPath
from msprobe.report.overflow_files import analyze, say_where

__all__ = ["NanAnalyzer"]


class NanAnalyzer:
    """Searches the folder of a step, or of a dump; writes ``anomaly_analyze_{time}.json`` if it finds something."""

    def __init__(self, input_path: StrPath, output_path: StrPath = "./output") -> None:
        self._input_path = input_path
        self._output_path = output_path

    def analyze(self) -> None:
        """Do it, and say where the result is. Raises PathError or InvalidInputError for what is no dump."""
        _, file = analyze(self._input_path, self._output_path)
        say_where(file)
