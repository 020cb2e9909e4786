"""The verdict on a candidate that ran in lockstep: every call that its own inputs do not explain.

Each step is judged as ``compare`` judges it (:mod:`msprobe.diagnose.one_step`), by itself: in lockstep nothing of a
step reaches the next one, and no call reaches another, so that each difference is one that begins where it is seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msprobe.compare.entry_names import read_name, writes_in_place
from msprobe.compare.number_types import epsilon_of
from msprobe.diagnose.differences.records import is_floating
from msprobe.diagnose.effect.reach import Reach
from msprobe.diagnose.evidence import Because, Listed, OneSide, ResultFact, SeenFact
from msprobe.diagnose.findings import Finding, Status, Verdict
from msprobe.diagnose.one_step import StepTask, judge
from msprobe.diagnose.origin.ledger import Suspect
from msprobe.diagnose.tolerance import tensor, units
from msprobe.diagnose.verdict.common import Rank, StepPair, in_common
from msprobe.diagnose.verdict.conclusion import ComparedRank, across_ranks
from msprobe.diagnose.verdict.readable import readable_verdict
from msprobe.diagnose.verdict.recordings import two_models
from msprobe.diagnose.verdict.running import Running
from msprobe.lockstep import account_files
from msprobe.lockstep.account import StepAccount
from msprobe.lockstep.healthy import Healthy, is_seen_after_backward, only_makes_a_start, rounds_far_more_often
from msprobe.messages import said
from msprobe.paths import StrPath
from msprobe.report.verdict_file import write_verdict
from msprobe.store.reader import Dump, open_dump

FILE = "verdict.json"
_MOST_FINDINGS = 100
#: Units of rounding that one call may make of the unit of its inputs (tolerance/tensor.py).
_OF_ONE_CALL = 16.0
_MOST_QUIET = 10
_MOST_NAMED = 10
_NOTHING_LEFT = Reach()
_MEASURED = frozenset(("computation", "gradient", "parameter_gradient", "recompute", "collective"))


def judge_and_write(candidate: StrPath, reference: StrPath) -> tuple[Verdict, Path]:
    """Judge what can be read of both, and write ``verdict.json`` beside the candidate's steps, with whole paths, as
    it is read from any folder. Raises PathError or InvalidInputError.
    """
    verdict, _, _ = readable_verdict(judge_lockstep, Path(candidate).resolve(), Path(reference).resolve())
    return verdict, write_verdict(Path(candidate) / FILE, verdict)


def judge_lockstep(candidate: StrPath, reference: StrPath, progress: Callable[[str], None] | None = None) -> Verdict:
    """Every wrong call of a candidate that ran in lockstep with ``reference``, in all its steps and ranks.

    Raises PathError or InvalidInputError if one of the dumps cannot be read.
    """
    account = account_files.read(candidate)
    first, other = open_dump(candidate), open_dump(reference)
    common = in_common(first, other)
    running = Running(common.findings)
    findings = _Findings()
    compared = False
    # The gradients that the step before has left behind.
    left: dict[Rank, Any] = {}
    for number, step in enumerate(common.steps):
        if progress is not None:
            progress(said("job-of-jobs", said("step", step.candidate), number + 1, len(common.steps)))
        results = [
            judge(
                StepTask(
                    first.only(step.candidate, rank),
                    other.only(step.reference, twin),
                    None,
                    number == 0,
                    _NOTHING_LEFT,
                    left.get(rank, ({}, {})),
                    {},
                    None,
                    (len(first.steps), len(other.steps)),
                    isolated=True,
                    known=_known_of(account, step, rank).partners,
                    delivered=_known_of(account, step, rank).delivered,
                )
            )
            for rank, twin in step.ranks
        ]
        left = {result.rank: result.left for result in results}
        results = running.add(results)
        other_model = two_models(result.answering for result in results) if number == 0 else ""
        if any(_known_of(account, step, result.rank).delivered for result in results):
            other_model = ""  # its parameters are those of the reference, whatever is written otherwise
        if other_model and any(result.suspects for result in results):
            compared = False
            running.leave_out(step.candidate, other_model, len(results))
            break
        compared = compared or any(result.summary["pairs"] for result in results)
        findings.add(step, results, account)
    status = findings.status if compared else "incomparable"
    notes = [
        *common.notes,
        *_notes_on_ranks(account["ranks"], other),
        *findings.notes(),
        *_notes_of(account),
        *running.notes(),
    ]
    reasons = [] if compared else (running.reasons() or [said("no-call-in-common")])
    summary = running.summary(len(common.steps) + len(common.without_rank), common.only_on_one_side)
    summary["lockstep"] = counts = account["counts"]
    if counts.get("regions") and counts.get("regions_healthy") == counts["regions"]:
        # Calls without a partner are judged by what their regions come to.
        summary.pop("little_in_common", None)
    return Verdict(
        status,
        str(candidate),
        str(reference),
        tuple([*common.findings, *findings.findings()] if compared else common.findings),
        tuple(dict.fromkeys([*reasons, *notes, *running.notes_on_gaps()])),
        summary,
        tuple(running.apart),
        reasons[0] if reasons else "",
        tuple(running.not_compared),
    )


class _Findings:
    """What was found in all steps: the same call with the same fault in several steps is one finding."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Any, ...], tuple[Finding, list[int | None]]] = {}
        self._quiet: dict[tuple[Any, ...], Finding] = {}
        self._random: dict[str, None] = {}
        # By rank, the writes of one side alone of the step before: the weights of the next step show them.
        self._writes: dict[int | str | None, list[tuple[tuple[Any, ...], Suspect, StepPair]]] = {}

    @property
    def status(self) -> Status:
        """What they amount to."""
        return "diverged" if self._kept else "harmless" if self._quiet else "agree"

    def add(self, step: StepPair, results: Sequence[ComparedRank], account: Mapping[str, Any]) -> None:
        """The suspects of one step. ``account``: see :func:`account_files.read`."""
        for result in results:
            by_api: dict[str, list[dict[str, Any]]] = {}
            for departure in _known_of(account, step, result.rank).carried:
                by_api.setdefault(read_name(departure["left_by"]).stem, []).append(departure)
            for api, every in by_api.items():
                self._keep(("carried", api, None, result.rank), _carried_suspect(every, result.rank), step)
        suspects = across_ranks(
            [self._without_healthy(result, _known_of(account, step, result.rank)) for result in results]
        )
        writes, self._writes = self._writes, {}
        for rank in {
            suspect.finding.rank for suspect in suspects if suspect.finding.kind == "weights" and _counts(suspect)
        }:
            for written in writes.get(rank, ()):
                self._keep(*written)
        # What an optimizer with other settings calls has other arguments; that was given.
        ranks_of_optimizer = {suspect.finding.rank for suspect in suspects if suspect.finding.kind == "optimizer"}
        for suspect in suspects:
            finding = suspect.finding
            if finding.kind != "optimizer" and finding.direction == "optimizer" and finding.rank in ranks_of_optimizer:
                continue
            # What differs before the first step still does before the second.
            kind = "weights" if finding.kind == "initial_weights" else finding.kind
            mark = kind, finding.where, finding.module, finding.rank
            if finding.kind in _MEASURED and (whole := finding.fact(ResultFact)) is not None and whole.is_explained:
                continue  # other bits, and no more than the rounding of the call by itself
            if _is_rounded_to_fewer(suspect) and not _is_of_another_type(suspect):
                continue
            cause = finding.fact(Because)
            if cause is not None and cause.cause == "random":
                self._random.setdefault(finding.entry or finding.where)
            elif _counts(suspect):
                self._keep(mark, suspect, step)
            elif finding.kind in ("argument", "choice"):
                self._quiet.setdefault(mark, replace(finding, harmless=True))
            elif _writes_alone(finding):
                self._writes.setdefault(finding.rank, []).append((mark, suspect, step))

    def _without_healthy(self, result: ComparedRank, known: StepAccount) -> ComparedRank:
        """What is suspected, without what is done otherwise and comes to the same."""
        healthy = Healthy(known)
        kept: list[Suspect] = []
        for suspect in result.suspects:
            if not healthy.explains(suspect):
                kept.append(suspect)
            elif only_makes_a_start(suspect):
                continue
            elif suspect.finding.kind != "missing_gradient" and (suspect.clear or suspect.matters):
                mark = suspect.finding.kind, suspect.finding.where, suspect.finding.module, suspect.finding.rank
                self._quiet.setdefault(mark, replace(suspect.finding, harmless=True))
        return replace(result, suspects=kept)

    def _keep(self, mark: tuple[Any, ...], suspect: Suspect, step: StepPair) -> None:
        known = self._kept.get(mark)
        if known is None:
            self._kept[mark] = replace(suspect.finding, harmless=False), [step.candidate]
        elif step.candidate not in known[1]:
            known[1].append(step.candidate)

    def findings(self) -> list[Finding]:
        """All of them; of those that are there in several steps, in which."""
        kept = list(self._kept.values())
        # A gradient as it arrived follows from what made it, where that is named.
        makers = {finding.rank for finding, _ in kept if not is_seen_after_backward(finding)}
        shown = _one_of_a_line(
            finding if len(steps) < 2 else replace(finding, evidence={**finding.evidence, "steps": steps})
            for finding, steps in kept
            if not (is_seen_after_backward(finding) and finding.rank in makers)
        )
        quiet = [finding for mark, finding in self._quiet.items() if mark not in self._kept]
        return [*shown[:_MOST_FINDINGS], *quiet[:_MOST_QUIET]]

    def notes(self) -> list[str]:
        """What was not judged."""
        if not self._random:
            return []
        return [said("random-not-judged", _listed(list(self._random)))]


def _carried_suspect(every: Sequence[Mapping[str, Any]], rank: Rank) -> Suspect:
    """What calls of the candidate alone, of one API, have left for the next step, and is not what the reference has."""
    first, *others = every
    message = said("kept-state-differs", first["left_by"], first["apart"], first["argument"], first["recorded"])
    evidence = {"alike": [other["left_by"] for other in others]} if others else {}
    finding = Finding(
        "mutation", message, first["left_by"], first["left_by"], step=first["step"], rank=rank, evidence=evidence
    )
    return Suspect(finding, 0.0, clear=True, matters=True)


def _known_of(account: Mapping[str, Any], step: StepPair, rank: Rank) -> StepAccount:
    """What is known of a step of a rank beside its dump."""
    account_of_step: StepAccount | None = account["steps"].get(
        (step.candidate or 0, "" if rank == "rank" or rank is None else str(rank))
    )
    return account_of_step or StepAccount()


def _counts(suspect: Suspect) -> bool:
    """True for what is no rounding."""
    if _is_rounded_to_fewer(suspect) and not _is_of_another_type(suspect):
        return False
    return bool(suspect.clear or suspect.matters or suspect.shows_later) or _is_beyond_all_rules(suspect)


def _writes_alone(finding: Finding) -> bool:
    """True for calls of one side alone that write in place, and nothing in the step shows to what."""
    listed = (fact for fact in finding.facts if isinstance(fact, Listed) and fact.what == "calls")
    names = [name for list_of_names in listed for name in list_of_names.names]
    return finding.kind == "structure" and any(writes_in_place(read_name(name).stem) for name in names)


def _is_beyond_all_rules(suspect: Suspect) -> bool:
    """True for what a comparison of whole trainings would not be sure of, and lockstep is."""
    return _is_of_another_type(suspect) or _is_beyond_its_calls(suspect) or rounds_far_more_often(suspect)


def _is_beyond_its_calls(suspect: Suspect) -> bool:
    """True for a tensor that is further apart than the rounding of the few calls that one side alone makes for it: all
    that they take is the same.
    """
    alone, difference = suspect.finding.fact(OneSide), suspect.difference
    if suspect.finding.kind != "structure" or alone is None or difference is None or not suspect.begins:
        return False
    calls = max(1, len(alone.candidate) + len(alone.reference))
    limit = _OF_ONE_CALL * units.pair_unit(difference) * math.sqrt(calls)
    return math.isfinite(difference.delta) and difference.delta > limit


def _is_of_another_type(suspect: Suspect) -> bool:
    """True for what comes from outside of all calls in a type of its own, where the run has the reference's types: what
    rounding to it does is no rounding of a call.
    """
    difference = suspect.difference
    if difference is None or suspect.finding.kind not in ("data", "weights", "initial_weights") or not suspect.begins:
        return False
    left, right = difference.left, difference.right
    return is_floating(left) and is_floating(right) and left["dtype"] != right["dtype"]


def _is_rounded_to_fewer(suspect: Suspect) -> bool:
    """True for a weight or a state of an optimizer that was put to the reference's, and has a type of fewer digits, and
    for a gradient that arrives in such a type: the program casts it back on its way, which is no call of its own.
    """
    finding = suspect.finding
    seen, cause = finding.fact(SeenFact), finding.fact(Because)
    if seen is None or tensor.is_another(seen.difference, "stored"):
        return False
    if finding.kind in ("weights", "initial_weights") or (cause is not None and cause.cause == "state"):
        return True
    left, right = seen.difference.left, seen.difference.right
    judged = suspect.judged
    arrives = finding.kind in ("gradient", "loss_scale") and judged is not None and bool(judged.changed_inputs)
    return (
        arrives and is_floating(left) and is_floating(right) and epsilon_of(left["dtype"]) > epsilon_of(right["dtype"])
    )


def _one_of_a_line(findings: Iterable[Finding]) -> list[Finding]:
    """The findings; of those that say the same of calls that one line of code makes in one module, the first, which
    names the others (``alike``).
    """
    alike: dict[Hashable, list[Finding]] = {}
    for number, finding in enumerate(findings):
        source, entry = finding.evidence.get("source"), finding.entry
        mark: Hashable = number
        if source is not None and entry is not None:
            name = read_name(entry)
            # Of an optimizer, each setting is a thing of its own.
            setting = finding.where.removeprefix(entry) if finding.kind == "optimizer" else ""
            mark = finding.kind, finding.rank, finding.module, source, name.stem, name.direction, setting
        alike.setdefault(mark, []).append(finding)
    return [
        first if not others else replace(first, evidence={**first.evidence, "alike": [other.entry for other in others]})
        for first, *others in alike.values()
    ]


def _notes_on_ranks(count: int, reference: Dump) -> list[str]:
    """``count``: of ranks that ran."""
    recorded = max((len(reference.ranks(step)) for step in reference.steps), default=0)
    if count >= recorded:
        return []
    return [said("not-all-ranks-ran", count, recorded)]


def _notes_of(account: dict[str, Any]) -> list[str]:
    counts, named = account["counts"], account["named"]
    notes: list[str] = []
    lone, shapes = counts.get("without_partner"), counts.get("other_shape")
    if counts.get("step_not_in_reference"):
        names = _listed(named.get("step_not_in_reference", []))
        notes.append(said("parameters-not-in-reference", names))
    if lone:
        notes.append(said("calls-without-partner", lone, _listed(named.get("without_partner", []))))
    if shapes:
        notes.append(said("results-of-other-shapes", shapes, _listed(named.get("other_shape", []))))
    return notes


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return shown + (said("and-more", len(names) - _MOST_NAMED) if len(names) > _MOST_NAMED else "")
