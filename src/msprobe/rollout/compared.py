"""What came of a recorded engine against a trainer's model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msprobe.coverage import Coverage
from msprobe.rollout.contract import Contract, Finding, Status

#: What may be the effect of other weights or of an operator: these stand behind them.
EFFECTS = ("beyond-rounding", "responses-stand-out", "from-a-position-on", "temperature-not-applied")


@dataclass
class Compared:
    """``contract``: of the log-probs, where the engine gave any. ``findings``: of weights and operators, in order.

    ``operators``: for each module its calls, rows, wrong rows, the largest deviation in units of rounding, that of the
    trainer's own operator, the share of equal bits, and rows that could not be judged.
    """

    contract: Contract | None = None
    findings: list[Finding] = field(default_factory=list)
    weights: int = 0
    operators: dict[str, dict[str, Any]] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)

    @property
    def all_findings(self) -> list[Finding]:
        """In the order in which they decide: contract, weights, operators, and what may be their effect."""
        given = list(self.contract.findings) if self.contract is not None else []
        causes = [one for one in given if one.code not in EFFECTS]
        return [*causes, *self.findings, *(one for one in given if one.code in EFFECTS)]

    @property
    def status(self) -> Status:
        """As of a contract."""
        return "DIVERGED" if self.all_findings else "AGREE" if self.coverage.read.get("calls") else "NOT JUDGED"

    @property
    def exit_code(self) -> int:
        """1 where something does not hold, 2 where nothing was found and not all could be judged, else 0."""
        return 2 if self.status == "NOT JUDGED" else self.coverage.status(self.status == "DIVERGED")
