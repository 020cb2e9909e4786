"""Pass, warning or error for each argument and result of a node. Rules: mindstudio-probe 26.2.0."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msprobe.compare.indicators import FROM_OTHER_RANKS
from msprobe.graph.differences import NO_DIFFERENCE, NodeDifference, is_bad
from msprobe.graph.modes import Mode
from msprobe.graph.parameter_texts import column_texts
from msprobe.messages import said, translated

PASS, WARNING, ERROR = 0.0, 0.5, 1.0
_WORDS = {PASS: "pass", WARNING: "warning", ERROR: "error"}
# What they give is memory that nobody has written, or what went in.
_WITHOUT_RULES = frozenset(
    "empty empty_like numpy to __setitem__ empty_with_format new_empty_strided new_empty empty_strided".split()
)

_COLUMNS = ("Requires_grad Consistent", "Result", "Err_message")
# What most pairs are.
_PASSED = column_texts(_COLUMNS, ["True", "pass", "[]"])

Row = tuple[Any, Any, NodeDifference | None]
"""The description of the candidate, that of the reference, and how they differ."""


def levels_of(name: str, mode: Mode, inputs: Sequence[Row], outputs: Sequence[Row]) -> tuple[float, list[str]]:
    """The level of a node, and for each argument, then each result, the columns that say why, as JSON text."""
    words = name.split(".", 2)
    api = words[1] if len(words) > 1 else ""
    by_input = api not in FROM_OTHER_RANKS
    if all(
        difference is NO_DIFFERENCE and _same_kind(mine, theirs) for mine, theirs, difference in (*inputs, *outputs)
    ):
        return PASS, [_PASSED] * (len(inputs) + len(outputs))
    into = _norm_error(inputs), *_ratios(inputs)
    texts: list[str] = []
    worst = PASS
    for rows, are_outputs in ((inputs, False), (outputs, True)):
        for mine, theirs, difference in rows:
            if difference is None:
                texts.append("")
                continue
            reasons = [] if api in _WITHOUT_RULES else _own_reasons(mine, theirs, difference, mode)
            if are_outputs and by_input and api not in _WITHOUT_RULES:
                reasons += _against_inputs(difference, mode, into)
            level = max((level for level, _ in reasons), default=PASS)
            worst = max(worst, level)
            grads = _requires_grad(mine), _requires_grad(theirs)
            messages = json.dumps([f"{_WORDS[level]}: {translated(text)}" for level, text in reasons])
            # A list as JSON text in a JSON text.
            texts.append(column_texts(_COLUMNS, [str(grads[0] == grads[1]), _WORDS[level], json.dumps(messages)[1:-1]]))
    return worst, texts


def _same_kind(mine: Any, theirs: Any) -> bool:
    """True for two tensors of one type and shape that both require gradients, or both do not."""
    return (
        type(mine) is dict
        and type(theirs) is dict
        and mine.get("dtype") == theirs.get("dtype")
        and mine.get("shape") == theirs.get("shape")
        and mine.get("requires_grad") == theirs.get("requires_grad")
    )


def _own_reasons(mine: Any, theirs: Any, difference: NodeDifference, mode: Mode) -> list[tuple[float, str]]:
    reasons: list[tuple[float, str]] = []
    if difference.is_bad and not is_bad(theirs):
        reasons.append((ERROR, said("not-finite-in-debug")))
    if _requires_grad(mine) != _requires_grad(theirs):
        reasons.append((ERROR, said("node-requires-grad-differs")))
    if type(mine) is dict and type(theirs) is dict and "dtype" in mine and "dtype" in theirs:
        if mine["dtype"] != theirs["dtype"]:
            reasons.append((ERROR, said("node-dtype-differs")))
        if mine.get("shape") != theirs.get("shape"):
            reasons.append((ERROR, said("node-shape-differs")))
    elif _value(mine) != _value(theirs):
        reasons.append((ERROR, said("node-value-differs")))
    if mode == "md5" and difference.same is False:
        reasons.append((ERROR, said("node-digest-differs")))
    return reasons


def _against_inputs(
    difference: NodeDifference, mode: Mode, into: tuple[float | None, float | None, float | None]
) -> list[tuple[float, str]]:
    reasons: list[tuple[float, str]] = []
    norm_in, ratio_in, cosine_in = into
    if mode == "summary" and difference.relative:
        error = difference.relative[3]
        if error == error and norm_in is not None:
            if norm_in < 0.1 and error > 0.5:
                reasons.append((ERROR, said("norm-off-by-half")))
            if error > (10 * norm_in if norm_in else 0.1):
                reasons.append((WARNING, said("norm-off-ten-times")))
    elif mode == "all":
        ratio, cosine = difference.one_thousandth, difference.cosine
        if ratio is not None and ratio_in is not None and ratio_in > 0.9 and ratio < 0.1:
            reasons.append((ERROR, said("thousandths-lost")))
        if cosine is not None and cosine_in is not None and cosine_in > 0.9 and cosine_in - cosine > 0.1:
            reasons.append((WARNING, said("cosine-lower-than-inputs")))
    return reasons


def _norm_error(rows: Sequence[Row]) -> float | None:
    relatives = [d.relative[3] for _, _, d in rows if d is not None and d.relative and d.relative[3] == d.relative[3]]
    return max(relatives, default=None)


def _ratios(rows: Sequence[Row]) -> tuple[float | None, float | None]:
    ratios = [d.one_thousandth for _, _, d in rows if d is not None and d.one_thousandth is not None]
    cosines = [d.cosine for _, _, d in rows if d is not None and d.cosine is not None]
    return min(ratios, default=None), min(cosines, default=None)


def _requires_grad(leaf: Any) -> Any:
    return leaf.get("requires_grad") if type(leaf) is dict else None


def _value(leaf: Any) -> Any:
    return leaf.get("value") if type(leaf) is dict else leaf
