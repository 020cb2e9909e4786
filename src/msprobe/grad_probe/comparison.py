"""Two runs of the probe, rank by rank: similarities where there are directions, else the first numbers that differ.

What one side lacks is noted, and the rest is compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msprobe.coverage import NotRead
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.grad_probe.reading import NUMBERS, RankFolder, StepRows, shape_of
from msprobe.grad_probe.similarity import Similarity, compare_directions
from msprobe.grad_probe.sizes import Verdict, sizes_of, verdict_of
from msprobe.grad_probe.verdict import Problem, Thresholds, problems_of
from msprobe.messages import said

# What wrappers put before the name of a parameter, or between its parts.
_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class NumberDifference:
    """Where the numbers of a parameter differ first: texts of the two csv files."""

    parameter: str
    step: int
    column: str
    ours: str
    other: str


@dataclass
class RankComparison:
    """What came of one rank. ``similarities``: by parameter and step, in the order of the model; what is not there
    could not be compared. ``differences``: of runs without directions, one for each parameter that differs.
    """

    rank: int
    steps: list[int] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    similarities: dict[str, dict[int, Similarity]] = field(default_factory=dict)
    differences: list[NumberDifference] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[NotRead] = field(default_factory=list)
    #: Those of the notes that are of gradients that were read and are rounding alone.
    not_judged: list[NotRead] = field(default_factory=list)

    def value(self, parameter: str, step: int) -> float | None:
        """The similarity of a parameter at a step; None if there is none."""
        similarity = self.similarities.get(parameter, {}).get(step)
        return None if similarity is None else similarity.value

    def summary(self, step: int) -> float | None:
        """The similarity of all parameters together, weighted by their size."""
        known = [steps[step] for steps in self.similarities.values() if step in steps]
        count = sum(similarity.count for similarity in known)
        return sum(similarity.equal for similarity in known) / count if count else None


def compare_rank(
    rank: int, first: RankFolder, other: RankFolder, limits: Thresholds, partner: Callable[[str], str]
) -> RankComparison:
    """Compare what one rank wrote in two runs. ``partner``: the name in the other run of a parameter of the first."""
    result = RankComparison(rank)
    common = [step for step in first.steps if step in other.steps]
    _note_lacking(result, "gradients-of-step", first.steps, other.steps)
    if not common:
        result.notes.append(NotRead("", said("gradients-no-common-step")))
        return result
    with_directions = [step for step in common if step in first.direction_steps and step in other.direction_steps]
    result.steps = with_directions or common
    _note_lacking(
        result,
        "directions-of-steps",
        *([step for step in common if step in side.direction_steps] for side in (first, other)),
    )
    lacking = _Lacking()
    numbers = _Numbers(result)
    unjudged = _Unjudged(rank)
    for step in result.steps:
        try:
            left, right = first.rows(step), other.rows(step)
        except MsprobeError as problem:
            result.notes.append(NotRead(said("gradients-of-step", step), problem.message))
            continue
        sizes = sizes_of(left), sizes_of(right)
        for name, right_name in _pairs(step, left, right, partner, lacking):
            result.similarities.setdefault(name, {})
            if not with_directions:
                numbers.look(step, name, left.rows[name], right.rows[right_name])
                continue
            try:
                similarity = _similarity(step, name, right_name, first, other, left)
            except InvalidInputError as problem:
                lacking.add(said("gradient-not-comparable", problem.message), name, step)
                continue
            if isinstance(similarity, str):
                lacking.add(similarity, name, step)
            else:
                result.similarities[name][step] = similarity
                unjudged.add(verdict_of(sizes[0], name, sizes[1], right_name), name, step)
    result.parameters = list(result.similarities)
    result.not_judged = unjudged.notes()
    result.notes += lacking.notes() + result.not_judged
    for place, name in enumerate(result.parameters):
        values = {
            step: similarity.value
            for step, similarity in result.similarities[name].items()
            if unjudged.allows(name, step)
        }
        result.problems += [*unjudged.problems(name, place), *problems_of(rank, name, place, values, limits)]
    places = {name: place for place, name in enumerate(result.parameters)}
    result.problems += [
        Problem(
            rank,
            difference.parameter,
            difference.step,
            said("gradient-numbers-differ", difference.column, difference.ours, difference.other),
            places[difference.parameter],
        )
        for difference in result.differences
    ]
    return result


class _Unjudged:
    """Steps of parameters whose similarity says nothing: gradients with NaN, and such as are rounding alone."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._steps: dict[str, dict[int, Verdict]] = {}

    def add(self, verdict: Verdict, name: str, step: int) -> None:
        """What was found of a parameter at a step; "" counts as nothing."""
        if verdict:
            self._steps.setdefault(name, {})[step] = verdict

    def allows(self, name: str, step: int) -> bool:
        """True if the similarity may be judged."""
        return step not in self._steps.get(name, {})

    def problems(self, name: str, place: int) -> list[Problem]:
        """The first step at which one run has a NaN where the other has none."""
        steps = self._steps.get(name, {})
        bad_steps = [step for step, verdict in sorted(steps.items()) if verdict in ("nan-in-first", "nan-in-second")]
        return [Problem(self._rank, name, step, said(f"gradient-{steps[step]}"), place) for step in bad_steps[:1]]

    def notes(self) -> list[NotRead]:
        """What was not judged, and is no problem."""
        reasons = {"noise": said("gradient-is-noise"), "nan-in-both": said("gradient-nan-in-both")}
        lacking = _Lacking()
        for name, steps in self._steps.items():
            for step, verdict in steps.items():
                if verdict in reasons:
                    lacking.add(reasons[verdict], name, step)
        return lacking.notes()


class _Lacking:
    """What could not be compared, in which steps, and why."""

    def __init__(self) -> None:
        self._steps: dict[str, dict[str, list[int]]] = {}

    def add(self, reason: str, name: str, step: int) -> None:
        """``name`` could not be compared at ``step``."""
        self._steps.setdefault(reason, {}).setdefault(name, []).append(step)

    def notes(self) -> list[NotRead]:
        """A line for all names with the same reason and steps."""
        grouped: dict[tuple[str, tuple[int, ...]], list[str]] = {}
        for reason, names in self._steps.items():
            for name, steps in names.items():
                grouped.setdefault((reason, tuple(steps)), []).append(name)
        return [
            NotRead(_some(names), said("reason-in-steps", reason, _some(map(str, steps))))
            for (reason, steps), names in grouped.items()
        ]


def _pairs(
    step: int, left: StepRows, right: StepRows, partner: Callable[[str], str], lacking: _Lacking
) -> list[tuple[str, str]]:
    """The names of each parameter in both."""
    plain = {_WRAPPERS.sub("", name): name for name in right.rows}
    pairs = []
    for name in left.rows:
        wanted = partner(name)
        partner_name = wanted if wanted in right.rows else plain.get(_WRAPPERS.sub("", wanted))
        if partner_name is None:
            lacking.add(said("not-in-second-run"), name, step)
        else:
            pairs.append((name, partner_name))
    taken = {partner_name for _, partner_name in pairs}
    for name in right.rows:
        if name not in taken:
            lacking.add(said("not-in-first-run"), name, step)
    return pairs


def _similarity(
    step: int, name: str, right_name: str, ours: RankFolder, other: RankFolder, left: StepRows
) -> Similarity | str:
    first, second = ours.direction(step, name), other.direction(step, right_name)
    if first is None or second is None:
        return said("no-direction-in-first") if first is None else said("no-direction-in-second")
    return compare_directions(first, second, shape_of(left.rows[name]))


class _Numbers:
    """Looks for the first step in which the numbers of a parameter differ."""

    def __init__(self, result: RankComparison) -> None:
        self._result = result
        self._known: set[str] = set()

    def look(self, step: int, name: str, first_row: Mapping[str, str], other: Mapping[str, str]) -> None:
        """Compare the rows of a parameter: by checksum where both have one of the same kind."""
        if name in self._known:
            return
        sums = first_row.get("md5", ""), other.get("md5", "")
        by_checksum = bool(sums[0]) and len(sums[0]) == len(sums[1])
        for column in ("md5",) if by_checksum else NUMBERS:
            values = first_row.get(column, ""), other.get(column, "")
            if values[0] != values[1]:
                self._known.add(name)
                # The checksum says that something differs, the numbers how much.
                shown = next((word for word in NUMBERS if first_row.get(word) != other.get(word)), column)
                title = "checksum" if shown == "md5" else shown
                difference = NumberDifference(name, step, title, first_row.get(shown, ""), other.get(shown, ""))
                self._result.differences.append(difference)
                return


def _note_lacking(result: RankComparison, name: str, first_steps: Iterable[int], other: Iterable[int]) -> None:
    """``name``: of the piece that says what one run has and the other has not."""
    first, second = set(first_steps), set(other)
    for numbers, side in ((first - second, "not-in-second-run"), (second - first, "not-in-first-run")):
        if numbers:
            what = said(name, _some([str(number) for number in sorted(numbers)]))
            result.notes.append(NotRead(what, said(side)))


def _some(names: Iterable[str]) -> str:
    listed: Sequence[str] = list(names)
    more = len(listed) - _MOST_NAMED
    named = ", ".join(listed[:_MOST_NAMED])
    return said("names-and-more", named, more) if more > 0 else named
