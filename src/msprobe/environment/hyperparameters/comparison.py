"""Two sides' hyper-parameters, paired by what their names mean; a row for each difference.

The columns are those of the sheet ``hyperparameters`` of mindstudio-probe: 8.1.1 pairs names that are equal, that its
table of other names has, or that look alike (Ratcliff and Obershelp, over 0.8); 26.2 compares last parts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from msprobe.environment.hyperparameters.effects import EFFECTS, Effect, effect_of, names_place
from msprobe.environment.hyperparameters.names import (
    betas_of,
    group_meanings,
    may_be_same,
    normal,
    plain_meaning,
)
from msprobe.environment.hyperparameters.values import is_same

ONLY_BENCH, ONLY_CMP = "Only in benchmark", "Only in comparison"
PURE_NAME, MAPPING = "pure name", "mapping"
_LEAST_RATIO = 0.8
#: Names that are less alike than this may be two things, so that a difference is no more than a warning.
_SURE_RATIO = 0.9
_MOST_PAIRS = 250_000
#: Longer names look like nothing else.
_MOST_LETTERS = 200
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "half": "float16", "float": "float32"}

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class ParameterDifference:
    """One difference. ``matched_with``: why the two names are one thing; None where only one side has it."""

    bench_para: str
    cmp_para: str
    bench_value: Any
    cmp_value: Any
    matched_with: str | None
    level: Level
    effect: Effect

    def cells(self, file_name: str) -> tuple[Any, ...]:
        """The row of the sheet: file_name, bench_para, cmp_para, bench_value, cmp_value, matched_with, level."""
        return (
            file_name,
            self.bench_para,
            self.cmp_para,
            self.bench_value,
            self.cmp_value,
            self.matched_with,
            self.level,
        )


def compare(bench: Mapping[str, Any], cmp: Mapping[str, Any]) -> list[ParameterDifference]:
    """The differences, those that change most first (``effects.EFFECTS``), errors before warnings.

    A value that differs is an error; a warning where it changes only speed or output, or where the names are not sure
    to mean one thing, and where it names a file or folder and the name does not say what for. What
    only one side has is a warning.
    """
    return sorted(_rows(bench, cmp), key=_importance)


def _importance(row: ParameterDifference) -> tuple[int, bool, bool, str, str]:
    is_alone = row.matched_with is None
    return EFFECTS.index(row.effect), is_alone, row.level != "error", row.bench_para, row.cmp_para


def _rows(bench: Mapping[str, Any], cmp: Mapping[str, Any]) -> Iterable[ParameterDifference]:
    first, second = _with_single_betas(bench), _with_single_betas(cmp)
    pairs = _Pairs(first, second)
    for our_name, two, why, ratio in pairs.paired:
        left, right = first[our_name], second[two]
        if is_same(left, right) or (why == MAPPING and _are_one_dtype(our_name, left, two, right)):
            continue
        effect = effect_of(our_name, left, right)
        is_place = effect == "unknown" and names_place(left) and names_place(right)
        is_sure = ratio >= _SURE_RATIO and effect not in ("speed", "output") and not is_place
        yield ParameterDifference(our_name, two, left, right, why, "error" if is_sure else "warning", effect)
    for name in pairs.first:
        yield ParameterDifference(name, ONLY_BENCH, first[name], None, None, "warning", effect_of(name))
    for name in pairs.second:
        yield ParameterDifference(ONLY_CMP, name, None, second[name], None, "warning", effect_of(name))


def _with_single_betas(side: Mapping[str, Any]) -> dict[str, Any]:
    single: dict[str, Any] = {}
    for name, value in side.items():
        names = betas_of(name)
        if names and isinstance(value, (list, tuple)) and len(value) == 2 and not set(names) & side.keys():
            single.update(zip(names, value, strict=True))
        else:
            single[name] = value
    return single


class _Pairs:
    """Names of both sides that are one thing; ``first`` and ``second`` keep those that found no partner."""

    def __init__(self, first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
        self.first, self.second = dict.fromkeys(first), dict.fromkeys(second)
        self.values = first, second
        self.paired: list[tuple[str, str, str, float]] = []
        self.by_key(lambda name: (name,), PURE_NAME)
        self.by_key(lambda name: (normal(name),), PURE_NAME)
        self.by_key(lambda name: (plain_meaning(name),), PURE_NAME)
        self.by_key(group_meanings, MAPPING)
        self.by_dtype()
        self.by_likeness()

    def put(self, first: str, two: str, why: str, ratio: float = 1.0) -> None:
        self.paired.append((first, two, why, ratio))
        del self.first[first], self.second[two]

    def by_key(self, keys: Callable[[str], Iterable[Any]], why: str) -> None:
        """Pair names that share a key which no other name of its side has."""
        sides: list[dict[Any, list[str]]] = []
        for names in (self.first, self.second):
            held = defaultdict(list)
            for name in names:
                for key in keys(name):
                    held[key].append(name)
            sides.append(held)
        for key, ones in sides[0].items():
            twos = sides[1].get(key, [])
            if len(ones) == len(twos) == 1 and ones[0] in self.first and twos[0] in self.second:
                self.put(ones[0], twos[0], why)

    def by_dtype(self) -> None:
        """``--bf16`` of one side is ``compute_dtype: bfloat16`` of the other."""
        first, second = ([name for name in side if _is_of_types(name)] for side in (self.first, self.second))
        if len(first) * len(second) > _MOST_PAIRS:
            return
        for name in first:
            for two in second:
                if (
                    name in self.first
                    and two in self.second
                    and _are_one_dtype(name, self.values[0][name], two, self.values[1][two])
                ):
                    self.put(name, two, MAPPING)

    def by_likeness(self) -> None:
        """Pair names that look alike, the likest first."""
        first, second = ([name for name in side if len(name) <= _MOST_LETTERS] for side in (self.first, self.second))
        if len(first) * len(second) > _MOST_PAIRS:
            return
        likely = []
        matcher = SequenceMatcher(autojunk=False)
        for two in second:
            matcher.set_seq2(two.lower())
            for name in first:
                matcher.set_seq1(name.lower())
                if matcher.real_quick_ratio() <= _LEAST_RATIO or matcher.quick_ratio() <= _LEAST_RATIO:
                    continue
                ratio = matcher.ratio()
                if ratio > _LEAST_RATIO and may_be_same(name, two):
                    likely.append((-ratio, name, two))
        for minus, name, two in sorted(likely):
            if name in self.first and two in self.second:
                self.put(name, two, f"similarity:{-minus}", -minus)


def _is_of_types(name: str) -> bool:
    return any(meaning.thing in ("bf16", "fp16", "compute_dtype") for meaning in group_meanings(name))


def _are_one_dtype(first: str, left: Any, two: str, right: Any) -> bool:
    named, flags = {}, {}
    for name, value in ((first, left), (two, right)):
        things = {meaning.thing for meaning in group_meanings(name)}
        if things & {"bf16", "fp16"}:
            flags[name] = _DTYPES["bf16" if "bf16" in things else "fp16"] if is_same(value, True) else ""
        elif "compute_dtype" in things and isinstance(value, str):
            word = value.rpartition(".")[2].lower()
            named[name] = _DTYPES.get(word, word)
    texts = [*named.values(), *flags.values()]
    return len(texts) == 2 and texts[0] == texts[1] and bool(texts[0]) and bool(named)
