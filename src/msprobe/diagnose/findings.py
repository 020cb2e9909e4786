"""What a comparison or a check found: statements with evidence, most likely origin first.

The form on disk is ``verdict.json``, described in ``docs/verdict.md``; its ``version`` grows when a reader of the
old form would misunderstand the new one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, get_args

from msprobe.coverage import Coverage
from msprobe.diagnose.covered import comparison_coverage
from msprobe.diagnose.evidence import Because, Fact, as_json
from msprobe.diagnose.steps.timeline import Direction
from msprobe.messages import arguments_of, code_of, coded, explained

VERSION = 1

F = TypeVar("F")

Status = Literal["agree", "harmless", "diverged", "incomparable"]
FindingKind = Literal[
    "data",
    "initial_weights",
    "structure",
    "argument",
    "dtype",
    "layout",
    "computation",
    "mutation",
    "recompute",
    "gradient",
    "missing_gradient",
    "parameter_gradient",
    "collective",
    "replica",
    "optimizer",
    "weights",
    "loss_scale",
    "overflow",
    "choice",
    "step_count",
    "error",
]

KINDS: tuple[FindingKind, ...] = get_args(FindingKind)


@dataclass(frozen=True)
class Finding:
    """One statement.

    ``where`` says in words what is at fault, ``entry`` is the record that shows it (of the candidate; of the
    reference where the candidate has none), ``module`` the path of the module it ran in, ``order`` its place
    in the order of execution. ``facts`` is what the finding rests on, ``evidence`` the same as JSON values; that of a
    check, or between layouts, has further ones.
    ``relation`` says in a few words how what differs is apart, for a line that has no room for the message.
    ``ranks``: all that it is on, where it says the same of several; ``rank`` is the one that it was found on first.
    ``harmless`` is true if nothing that counts (loss, gradients, weights) is changed by it.
    """

    kind: FindingKind
    message: str
    where: str
    entry: str | None = None
    module: str | None = None
    rank: int | str | None = None
    step: int | None = None
    direction: Direction = "none"
    order: int | None = None
    harmless: bool = False
    evidence: dict[str, Any] = field(default_factory=dict, hash=False)
    stack: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = field(default=(), hash=False)
    relation: str = field(default="", compare=False)
    ranks: tuple[int, ...] = field(default=(), compare=False)

    def fact(self, kind: type[F]) -> F | None:
        """The first fact of a kind that the finding rests on."""
        return next((fact for fact in self.facts if isinstance(fact, kind)), None)

    @property
    def meaning(self) -> str:
        """One sentence on what findings of this sort say; empty for kinds that this version does not know."""
        # For most causes the sentence on their kind is true as well.
        return explained("cause:beyond" if self.cause == "beyond" else f"kind:{self.kind}", "meaning")

    @property
    def cause(self) -> str | None:
        """What the diagnosis recognised as the cause."""
        fact = self.fact(Because)
        return fact.cause if fact is not None else None

    @property
    def code(self) -> str:
        """The code of its message (``D204``), by which ``msprobe explain`` knows it."""
        return code_of(self.message)[0]

    @property
    def name(self) -> str:
        """The name of its message (``argument-differs``)."""
        return code_of(self.message)[1]

    @property
    def arguments(self) -> dict[str, Any]:
        """What its message is made of, by name."""
        return arguments_of(self.message)

    def with_facts(self, message: str, *facts: Fact) -> Finding:
        """The finding, with more facts and words that say them."""
        return replace(self, message=message, facts=(*self.facts, *facts), evidence=self.evidence | as_json(facts))

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON values, in the order of the documentation."""
        return {
            "rank": self.rank,
            **({"ranks": list(self.ranks)} if self.ranks else {}),
            "step": self.step,
            "direction": self.direction,
            "kind": self.kind,
            "harmless": self.harmless,
            "where": self.where,
            "entry": self.entry,
            "module": self.module,
            "order": self.order,
            "code": self.code,
            "name": self.name,
            "message": self.message,
            "arguments": plain(self.arguments),
            "evidence": plain(self.evidence),
            "stack": list(self.stack),
            "alternatives": list(self.alternatives),
        }


#: Counts of ``verdict.json`` that had a different name: programs that read it by that one still find it.
_FORMER_NAMES = {"explained": "victim", "unexplained": "guilty"}
_NOT_READ = (
    *("unread", "unread_files", "not_compared"),
    *("steps_of_one_side", "ranks_of_one_side", "parts_of_one_side"),
)


@dataclass(frozen=True)
class Verdict:
    """The answer of one comparison.

    ``status``: ``agree`` (no difference beyond rounding), ``harmless`` (differences that change nothing that
    counts), ``diverged``, or ``incomparable`` (nothing answers to anything). ``notes`` are remarks that are
    no findings: another precision, other call names. ``apart``: the candidate's steps in which something differs beyond
    rounding, or one side makes a call alone. ``not_compared``: those that both sides have, and that cannot be compared.
    ``reason``: why they are not comparable, which ``notes`` say, too. These three are not part of ``verdict.json``.
    """

    status: Status
    candidate: str
    reference: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    summary: dict[str, Any] = field(default_factory=dict, hash=False)
    apart: tuple[int | None, ...] = ()
    reason: str = ""
    not_compared: tuple[int | None, ...] = ()

    @property
    def is_partial(self) -> bool:
        """True if a part, a step or a tensor file could not be read or compared, or one side alone has a step or
        rank.
        """
        return any(self.summary.get(key) for key in _NOT_READ) or self.is_of_two_models

    @property
    def is_of_two_models(self) -> bool:
        """True if so few calls of either side answer to one of the other that nothing was compared to speak of."""
        shared = self.summary.get("little_in_common")
        return isinstance(shared, dict) and 2 * shared["pairs"] < shared["of_fewer"]

    @property
    def coverage(self) -> Coverage:
        """What was compared, and what of either side was not."""
        return comparison_coverage(self.summary, self.notes)

    @property
    def exit_code(self) -> int:
        """0: they agree, or differ harmlessly; 1: they diverged; 2: not comparable, or not all of both was."""
        if self.status in ("agree", "harmless"):
            return 2 if self.is_partial else 0
        return 1 if self.status == "diverged" else 2

    def to_json(self) -> dict[str, Any]:
        """The content of ``verdict.json``."""
        return {
            "version": VERSION,
            "status": self.status,
            "candidate": self.candidate,
            "reference": self.reference,
            "summary": plain(self.summary)
            | {former: self.summary[name] for name, former in _FORMER_NAMES.items() if name in self.summary}
            | {"kinds": dict(Counter(f.kind for f in self.findings))},
            "coverage": self.coverage.as_json(),
            "notes": list(self.notes),
            "messages": coded(self.notes),
            "findings": [finding.to_json() for finding in self.findings],
        }


def plain(value: Any) -> Any:
    """JSON values only: numbers that JSON does not know become their words."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if hasattr(value, "item"):
        return plain(value.item())
    return str(value)
