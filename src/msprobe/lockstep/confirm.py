"""Does a training agree with its reference once one named call is put right?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msprobe.compare.entry_names import read_name, without_call_number
from msprobe.diagnose import compare_runs
from msprobe.diagnose.findings import Finding, Verdict
from msprobe.diagnose.verdict.readable import readable_verdict
from msprobe.errors import InvalidInputError
from msprobe.foreign.json_text import read_json
from msprobe.messages import joined, said
from msprobe.paths import StrPath, named_in

#: What a call of one side alone, a batch or a weight could be put right by was not recorded as the result of a call.
_OF_CALLS = frozenset(
    (
        "argument",
        "choice",
        "collective",
        "computation",
        "dtype",
        "gradient",
        "layout",
        "loss_scale",
        "mutation",
        "optimizer",
        "overflow",
        "recompute",
    )
)
#: Other arguments and settings are a fact, whatever the results are put to.
_HOW_CALLED = frozenset(("argument", "optimizer"))


@dataclass(frozen=True)
class NamedCalls:
    """The calls that findings name, and the dump that is right."""

    entries: tuple[str, ...]
    reference: Path
    #: Why of some findings no call could be named; empty where all were.
    left_out: tuple[str, ...] = ()

    @property
    def is_every_call(self) -> bool:
        """True if all calls of their APIs are meant, and ``entries`` have ``*`` for their numbers."""
        return all(".*." in entry for entry in self.entries)

    @property
    def in_words(self) -> str:
        """As a sentence has them."""
        *others, last = (said("every-call-of", entry) if ".*." in entry else entry for entry in self.entries)
        return said("fields-and", joined(", ", others), last) if others else last

    def is_put_right(self, finding: Finding) -> bool:
        """True for what is still to be said of a call whose results were put right: how it was called."""
        entry = finding.entry or ""
        return finding.kind in _HOW_CALLED and any(
            entry in self.entries for entry in (entry, without_call_number(entry))
        )

    def is_of_same_api(self, entry: str | None) -> bool:
        """True for another call of the API of one that is named."""
        stems = {read_name(entry).stem for entry in self.entries}
        return entry is not None and not self.is_every_call and read_name(entry).stem in stems


def named_calls(verdict: StrPath, numbers: Sequence[int], is_every_call: bool = False) -> NamedCalls:
    """The calls of findings of a ``verdict.json``, by their numbers from 1; ``is_every_call``: all calls of their APIs.

    Of several findings those that name no such call are left out. Raises PathError or InvalidInputError, the latter
    where none is left.
    """
    path, findings, reference = _read(verdict)
    entries, problems = [], []
    for number in numbers:
        _demand_number(path, findings, number)
        try:
            entries.append(_entry_of(path, findings, number))
        except InvalidInputError as problem:
            problems.append(problem)
    if not entries:
        raise problems[0]
    named = tuple(dict.fromkeys(without_call_number(entry) if is_every_call else entry for entry in entries))
    return NamedCalls(named, reference, tuple(problem.message for problem in problems))


def _read(verdict: StrPath) -> tuple[Path, list[Any], Path]:
    path = Path(verdict)
    if path.is_dir():
        path /= "verdict.json"
    content = read_json(path)
    findings = content.get("findings") if isinstance(content, dict) else None
    if not isinstance(findings, list) or not isinstance(content.get("reference"), str):
        raise InvalidInputError(said("no-verdict-of-dumps", path))
    if not findings:
        raise InvalidInputError(said("verdict-without-findings", path))
    return path, findings, named_in(path, content["reference"])


def _demand_number(path: Path, findings: list[Any], number: int) -> None:
    if not 1 <= number <= len(findings) or not isinstance(findings[number - 1], dict):
        raise InvalidInputError(said("finding-number-wrong", path, len(findings), number))


def _entry_of(path: Path, findings: list[Any], number: int) -> str:
    finding: dict[str, Any] = findings[number - 1]
    entry, kind = finding.get("entry"), finding.get("kind")
    if kind not in _OF_CALLS or (finding.get("evidence") or {}).get("side") == "reference":
        raise InvalidInputError(said("finding-not-confirmable", number, path, kind))
    if not isinstance(entry, str) or read_name(entry).kind not in ("api", "module", "optimizer"):
        raise InvalidInputError(said("finding-names-no-call", number, path, entry))
    return entry


@dataclass(frozen=True)
class Confirmed:
    """What came out. ``verdict``: on the training in which the call was put right."""

    named: NamedCalls
    verdict: Verdict

    @property
    def is_confirmed(self) -> bool:
        """True if nothing else is wrong in what was compared."""
        return self.verdict.status in ("agree", "harmless")

    @property
    def rest(self) -> Finding | None:
        """What is still wrong first."""
        return self.verdict.findings[0] if self.verdict.findings and not self.is_confirmed else None

    def sentence(self) -> str:
        """The answer in a sentence, and what to do next in another one."""
        call, rest = self.named.in_words, self.rest
        if self.is_confirmed and self.verdict.is_partial:
            return said("put-right-agree-in-part", call, self.verdict.coverage.sentence())
        if self.is_confirmed:
            return said("put-right-agree", call)
        if self.verdict.status == "incomparable":
            return said("put-right-incomparable", call, self.verdict.reason)
        answer = said("put-right-still-differ", call)
        if rest is None:
            return answer
        answer += said("next-finding", rest.message)
        return answer + said("next-is-same-api") if self.named.is_of_same_api(rest.entry) else answer


def confirmed(named: NamedCalls, dump: StrPath) -> Confirmed:
    """Judge the training in which the call was put right, by what can be read of its dump and of the reference. Raises
    PathError or InvalidInputError.
    """
    compare = partial(compare_runs, is_known=named.is_put_right)
    return Confirmed(named, readable_verdict(compare, dump, named.reference)[0])
