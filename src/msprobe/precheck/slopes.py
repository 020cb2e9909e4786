"""The slopes of many results of one kind: what is small in each may be sure in all (:mod:`msprobe.signed_errors`)."""

from __future__ import annotations

import math

from msprobe.signed_errors import STANDARD_ERRORS, SlopeFit, limits_of


class SlopePool:
    """The slopes of many results of one kind, as of all calls of one API: what is small in each may be sure in all."""

    def __init__(self) -> None:
        self._weights = 0.0
        self._weighted = 0.0
        self.count = 0

    def add(self, slope: float, standard_error: float) -> None:
        """Another result; one whose standard error is not known counts for nothing."""
        if not (0 < standard_error < math.inf and math.isfinite(slope)):
            return
        weight = standard_error**-2
        self._weights += weight
        self._weighted += weight * slope
        self.count += 1

    @property
    def fit(self) -> SlopeFit:
        """The slope of all, each counted by how sure it is."""
        if not self._weights:
            return SlopeFit(0.0, math.inf)
        return SlopeFit(self._weighted / self._weights, self._weights**-0.5)

    def status(self, epsilon: float) -> str:
        """``pass``, ``Warning`` or ``error`` of all of them together."""
        fit, limits = self.fit, limits_of(epsilon)
        if self.count < 2 or abs(fit.size) <= epsilon * limits.whole or fit.certainty <= STANDARD_ERRORS:
            return "pass"
        return "error" if abs(fit.size) > epsilon * limits.whole_error else "Warning"
