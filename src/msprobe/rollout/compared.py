"""What came of a recorded engine against a trainer's model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msprobe.coverage import Coverage
from msprobe.rollout.contract import ROUNDING_OF_FLOAT32, ROUNDING_OF_HALF, Contract, RolloutFinding, RolloutStatus

#: What may be the effect of other weights or of an operator: these stand behind them.
_EFFECTS = ("log-probs-beyond-rounding", "responses-stand-out", "from-a-position-on", "temperature-not-applied")

#: What log-probs cannot be where they are those of the logits that were recorded: so these are effects, too.
_OF_OTHER_LOGITS = ("processed", "renormalised", "log-probs-divided", "log-base", "wrong-entry", "shifted-tokens")
#: Mean difference of log-probs that rounding may add up to in a deep model, in float32 and in half types: ten times
#: what a contract alone allows, which comes from models of two layers.
MOST_ADDED_UP = {False: 10 * ROUNDING_OF_FLOAT32, True: 10 * ROUNDING_OF_HALF}


@dataclass
class ComparedOperator:
    """All calls of a module, each side against the trainer's operator in float64.

    ``bits``: share of elements equal on both sides. ``engine``, ``trainer``: the largest deviation of a row, in units
    of rounding, and the mean by which rows are too large (``bias``), in the same units. ``slopes``: sums of the squared
    slopes of its rows, where it is a norm in a half type. ``skipped``: rows that were not judged; ``stand_in``: rows
    judged with keys of the trainer, as the engine's were cached before the recording.
    """

    calls: int = 0
    rows: int = 0
    wrong: int = 0
    skipped: int = 0
    stand_in: int = 0
    bits: float = 0.0
    engine: tuple[float, float] = (0.0, 0.0)
    trainer: tuple[float, float] = (0.0, 0.0)
    slopes: tuple[float, float] = (0.0, 0.0)

    def add(self, bits: float, engine: tuple[float, float], trainer: tuple[float, float]) -> None:
        """Add the (units, bias) of both sides of a call; ``calls`` counts it already."""
        share = 1 / self.calls
        self.bits += (bits - self.bits) * share
        self.engine = max(self.engine[0], engine[0]), self.engine[1] + (engine[1] - self.engine[1]) * share
        self.trainer = max(self.trainer[0], trainer[0]), self.trainer[1] + (trainer[1] - self.trainer[1]) * share

    @property
    def scaled(self) -> float:
        """How far rows are scaled as a whole, over what rounding of their elements and the trainer's own do to that."""
        if not self.rows:
            return 0.0
        mine, theirs = (slope / self.rows for slope in self.slopes)
        return float((mine / max(1.0, theirs)) ** 0.5)

    @property
    def nearer(self) -> str:
        """Who is nearer to float64: ``engine``, ``trainer``, or ``both`` where neither is by a tenth."""
        mine, theirs = self.engine[0], self.trainer[0]
        return "both" if abs(mine - theirs) <= 0.1 * max(mine, theirs) else "engine" if mine < theirs else "trainer"

    def as_json(self) -> dict[str, Any]:
        """For ``rollout.json``."""
        sides = {"engine": self.engine, "trainer": self.trainer}
        numbers = {name: value for name, value in vars(self).items() if not isinstance(value, tuple)}
        both = {name: {"units": side[0], "bias": side[1]} for name, side in sides.items()}
        return {**numbers, **both, "scaled": self.scaled, "nearer": self.nearer}


@dataclass
class RolloutAnswer:
    """``contract``: of the log-probs, where the engine gave any. ``findings``: of weights and operators, in order.

    ``operators``: a line for each module. ``judges_logits``: the engine's log-probs are those of its recorded logits.
    ``is_half``: they were computed in a half type.
    """

    contract: Contract | None = None
    findings: list[RolloutFinding] = field(default_factory=list)
    weights: int = 0
    operators: dict[str, ComparedOperator] = field(default_factory=dict)
    coverage: Coverage = field(default_factory=Coverage)
    judges_logits: bool = False
    is_half: bool = True

    @property
    def only_rounding(self) -> bool:
        """Is rounding that adds up the one thing that is left for log-probs that differ?

        Inputs and weights are equal, each operator gives what the trainer's does, keys are the engine's own, and the
        log-probs are those of the logits that were recorded.
        """
        own_keys = not any(line.stand_in for line in self.operators.values())
        given = self.contract is None or self.contract.measures.mean <= MOST_ADDED_UP[self.is_half]
        return bool(self.operators) and own_keys and self.coverage.is_complete and self.judges_logits and given

    @property
    def all_findings(self) -> list[RolloutFinding]:
        """In the order in which they decide: contract, weights, operators, and what may be their effect."""
        given = list(self.contract.findings) if self.contract is not None else []
        effects = (*_EFFECTS, *_OF_OTHER_LOGITS) if self.judges_logits and self.findings else _EFFECTS
        causes = [finding for finding in given if finding.name not in effects]
        if not causes and not self.findings and self.only_rounding:
            return []
        return [*causes, *self.findings, *(finding for finding in given if finding.name in effects)]

    @property
    def status(self) -> RolloutStatus:
        """As of a contract."""
        return "diverged" if self.all_findings else "agree" if self.coverage.read.get("calls") else "incomparable"

    @property
    def exit_code(self) -> int:
        """1 where something does not hold, 2 where nothing was found and not all could be judged, else 0."""
        return 2 if self.status == "incomparable" else self.coverage.status(self.status == "diverged")
