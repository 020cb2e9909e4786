"""What ``msprobe.compare``, ``msprobe.check`` and ``msprobe.open`` give: typed results for programs and notebooks.

None of this imports torch or MindSpore.
"""

from __future__ import annotations

from msprobe.grad_probe.comparator import GradComparator
from msprobe.results.records import Record, Tensor
from msprobe.results.runs import Part, Run, open_run
from msprobe.results.tables import Table
from msprobe.results.verdicts import CheckedRun, Comparison, Finding, check, compare

__all__ = [
    "CheckedRun",
    "Comparison",
    "Finding",
    "GradComparator",
    "Part",
    "Record",
    "Run",
    "Table",
    "Tensor",
    "check",
    "compare",
    "open_run",
]
