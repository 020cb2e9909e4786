"""How a parameter of the candidate differs from its partner, in the columns that graph files hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from msprobe.compare.measures_tensor import TENSOR_MEASURES, UNSUPPORTED, measure_tensors
from msprobe.graph.modes import Mode
from msprobe.graph.parameter_texts import column_texts
from msprobe.graph.value_texts import Form, digest_of, text_of, texts_of
from msprobe.statistics_table import DIFFERENCES, RELATIVE_ERRORS, USUAL_KEYS
from msprobe.store.part import DumpPart

NO_NUMBER = "N/A"
PASS, DIFFERENT = "pass", "Different"
_MAX, _MIN, _MEAN, _NORM = USUAL_KEYS

_COLUMNS = (*DIFFERENCES, *RELATIVE_ERRORS)
_NO_DIFFERENCE = column_texts(_COLUMNS, ["0.0"] * 4 + ["0.0%"] * 4)
_NO_NUMBERS = column_texts(_COLUMNS, [NO_NUMBER] * 8)
_AROUND_NUMBERS = column_texts(_COLUMNS, ["%s"] * 8)
_UNSUPPORTED = column_texts(TENSOR_MEASURES, [UNSUPPORTED] * len(TENSOR_MEASURES))


@dataclass(frozen=True)
class NodeDifference:
    """One pair of parameters: its columns as JSON text, and the numbers that levels and indices are made of.

    ``relative`` are the relative errors of Max, Min, Mean and Norm (1 means as large as the value; NaN where there is
    none), ``one_thousandth`` and ``cosine`` those of tensors, ``same`` whether digests agree. ``is_bad``: the candidate
    has NaN or infinities in Max or Min.
    """

    columns: str
    relative: tuple[float, ...] = ()
    one_thousandth: float | None = None
    cosine: float | None = None
    same: bool | None = None
    is_bad: bool = False


def statistics_of(leaf: Any) -> tuple[Any, ...] | None:
    """Max, Min, Mean and Norm of a tensor; of another argument its value, four times; None for null."""
    if type(leaf) is dict:
        if "dtype" in leaf:
            high = leaf.get(_MAX)
            return None if high is None else (high, leaf.get(_MIN), leaf.get(_MEAN), leaf.get(_NORM))
        leaf = leaf.get("value")
    return None if leaf is None else (leaf,) * 4


def is_bad(leaf: Any) -> bool:
    """True if Max or Min of a tensor is NaN or infinite."""
    if type(leaf) is not dict or "dtype" not in leaf:
        return False
    return any(_is_abnormal(leaf.get(name)) for name in ("Max", "Min"))


def _is_abnormal(value: Any) -> bool:
    if type(value) is float:
        return not math.isfinite(value)
    return isinstance(value, str) and value.lower().lstrip("-") in ("nan", "inf", "infinity")


class Differ:
    """Compares parameters in one mode and writes them in one form."""

    def __init__(self, mode: Mode, form: Form, parts: tuple[DumpPart, DumpPart]) -> None:
        self._mode = mode
        self._form = form
        self._parts = parts

    def difference(self, mine: Any, theirs: Any) -> NodeDifference | None:
        """The difference of two descriptions; None where nothing can be said."""
        if self._mode == "structure":
            return None
        ours = statistics_of(mine)
        if ours is None:
            return None
        if self._mode == "md5":
            return _digests(mine, theirs)
        if self._mode == "all":
            return self._values(mine, theirs)
        return self._summary(ours, statistics_of(theirs), is_bad(mine))

    def _summary(self, ours: tuple[Any, ...], theirs: tuple[Any, ...] | None, bad: bool) -> NodeDifference:
        if theirs is None:
            return NodeDifference(_NO_NUMBERS, is_bad=bad)
        if {*map(type, ours), *map(type, theirs)} == {float}:
            if not bad and ours == theirs and 0.0 not in theirs:
                return NO_DIFFERENCE
            differences = [a - b for a, b in zip(ours, theirs, strict=True)]
            relative = [_relative(d, b) for d, b in zip(differences, theirs, strict=True)]
            texts = texts_of(differences, self._form)
        else:
            texts, relative = [], []
            for a, b in zip(map(_number, ours), map(_number, theirs), strict=True):
                known = a is not None and b is not None
                texts.append(text_of(a - b, self._form) if known else NO_NUMBER)
                relative.append(_relative(a - b, b) if known else math.nan)
        columns = _AROUND_NUMBERS % (*texts, *map(percent, relative))
        return NodeDifference(columns, tuple(relative), is_bad=bad)

    def _values(self, mine: Any, theirs: Any) -> NodeDifference:
        names = [leaf.get("data_name") if type(leaf) is dict else None for leaf in (mine, theirs)]
        bad = is_bad(mine)
        arrays = [part.array(name) if name else None for part, name in zip(self._parts, names, strict=True)]
        if arrays[0] is None or arrays[1] is None:
            return NodeDifference(_UNSUPPORTED, is_bad=bad)
        measures = measure_tensors(arrays[0], arrays[1], "8.1.1" if self._form == "8.1.1" else "26.2")
        columns = column_texts(TENSOR_MEASURES, [text_of(value, self._form) for value in measures.values])
        ratio, cosine = measures.one_thousandth, measures.cosine
        return NodeDifference(
            columns,
            one_thousandth=ratio if isinstance(ratio, float) else None,
            cosine=cosine if isinstance(cosine, float) else None,
            is_bad=bad,
        )


#: The difference of two tensors whose statistics are equal, finite and not 0.
NO_DIFFERENCE = NodeDifference(_NO_DIFFERENCE, (0.0,) * 4)


def _relative(difference: Any, value: Any) -> float:
    # By way of per cent, as the files show it: the index is made of that number.
    return abs(difference / value) * 100 / 100 if value and difference == difference else math.nan


def percent(ratio: float) -> str:
    """A relative error as it stands in graph files: with six decimals, fewer where those are all.

    >>> percent(0.0540436119), percent(float("nan")), percent(0.0)
    ('5.404361%', 'N/A', '0.0%')
    """
    if ratio != ratio:
        return NO_NUMBER
    value = ratio * 100
    if 1e-4 <= value < 1e9 and (text := f"{value:.6f}")[-1] != "0":
        return f"{text}%"  # six decimals or more, and the shorter way to them
    text = repr(value)
    return f"{text}%" if "e" in text or len(text) - text.find(".") <= 7 else f"{value:.6f}%"


def _digests(mine: Any, theirs: Any) -> NodeDifference:
    same = digest_of(mine) == digest_of(theirs)
    return NodeDifference(column_texts(["Result"], [PASS if same else DIFFERENT]), same=same, is_bad=is_bad(mine))


def _number(value: Any) -> Any:
    """A number as it is, None for what is none; ``strict_json`` writes NaN and the infinities as strings."""
    if type(value) is float or type(value) is int:
        return value
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return float(value.replace("Infinity", "inf"))
    return None
