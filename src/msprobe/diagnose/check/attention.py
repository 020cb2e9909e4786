"""A model that predicts the next token and attends to later positions.

That it predicts the next token is known from how its labels are cut from the tokens. Causal attention over L positions
has at least L(L-1)/2 zeros in each matrix of probabilities; the number of zeros is recorded. With recorded tensors the
elements above the diagonal are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from msprobe.compare.entry_names import operation
from msprobe.diagnose.check.language import TokenText, texts
from msprobe.diagnose.check.moment import CheckedStep
from msprobe.diagnose.check.values import floats, has_values, measured, tensors
from msprobe.diagnose.differences.records import is_floating, numbers, numel
from msprobe.diagnose.findings import Finding
from msprobe.diagnose.steps.argument_names import argument
from msprobe.diagnose.steps.timeline import Event, Timeline
from msprobe.messages import said

#: Smaller numbers in the scores stand for minus infinity.
_MASKED = -1e4


def check(moment: CheckedStep) -> Iterable[Finding]:
    """The first softmax (or fused attention) of each pass that gives weight to later positions."""
    for text in texts(moment):
        if text.ahead is None or text.ahead < 1:
            continue
        for event in moment.calls:
            if not text.embedding.index < event.index < text.loss.index:
                continue
            looks_ahead = _looks_ahead(moment.timeline, event, text)
            if looks_ahead is not None:
                seen, certain = looks_ahead
                yield moment.finding(
                    event,
                    "computation",
                    said("attention-looks-ahead", seen),
                    evidence={
                        "certain": certain,
                        "probabilities": [measured(leaf) for leaf in floats(event.outputs())],
                        "labels": text.chain[-1].name,
                    },
                )
                break


def _looks_ahead(timeline: Timeline, event: Event, text: TokenText) -> tuple[str, bool] | None:
    word = operation(event.stem)
    results = floats(event.outputs())
    if not results or not has_values(results[0]):
        return None
    if word == "scaled_dot_product_attention":
        given = tensors(event.inputs())
        length = given[0].get("shape", [0, 0])[-2] if given else 0
        other = given[1].get("shape", [0, 0])[-2] if len(given) > 1 else 0
        mask, causal = argument(event, 3, "attn_mask"), argument(event, 5, "is_causal")
        if length == other == text.length and not causal and (mask is None or _masks_nothing(mask)):
            return said("and-is-causal-false", "no mask" if mask is None else "a mask that hides nothing"), True
        return None
    shape = results[0].get("shape")
    if word != "softmax" or not isinstance(shape, list) or len(shape) < 3 or shape[-2:] != [text.length] * 2:
        return None
    above = _above_diagonal(timeline, results[0])
    if above is not None:
        return (said("later-probabilities", above), True) if above else None
    scores = numbers(floats(event.inputs())[0]) if floats(event.inputs()) else None
    if scores is not None and math.isfinite(scores[1]) and scores[1] < _MASKED:
        return None  # A row masked wholly by a large negative number is uniform, which is no fault of the mask.
    length = text.length
    needed = numel(results[0]) // (length * length) * (length * (length - 1) // 2)
    zeros = int(results[0].get("zero") or 0)
    if zeros >= needed:
        return None
    return said("few-probabilities-zero", zeros, needed), False


def _masks_nothing(mask: object) -> bool:
    """True for a mask that is true everywhere, or adds zero to all scores."""
    if not is_floating(mask) or not isinstance(mask, dict):
        return isinstance(mask, dict) and str(mask.get("dtype")) == "torch.bool" and mask.get("Min") in (True, 1)
    return mask.get("Max") == mask.get("Min") == 0


def _above_diagonal(timeline: Timeline, leaf: dict[str, object]) -> int | None:
    """How many probabilities above the diagonal are not zero; None if the values were not recorded."""
    name = leaf.get("data_name")
    if not isinstance(name, str):
        return None
    values = timeline.part.array(name)
    if values is None or values.ndim < 2:
        return None
    # A row that is masked wholly by a large negative number is uniform.
    uniform = (values == values[..., :1]).all(axis=-1, keepdims=True)
    return int(np.count_nonzero(np.triu(np.where(uniform, 0, values), 1)))
