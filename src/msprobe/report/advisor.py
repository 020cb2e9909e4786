"""The advice that goes with a sheet: the first suspicious row, and what to look at.

Source of the form (three lines ``key: value``): mindstudio-probe 8.1.1.
"""

from __future__ import annotations

from msprobe.compare.comparison import Comparison
from msprobe.compare.suspect import Kind, Suspect, find_suspect

_NOTHING = "All compared values meet the requirement."
_ADVICE: dict[Kind, str] = {
    "nonfinite": "Here a NaN or an infinity is that the bench has not. Look at what this call calculates "
    "(division, exp, log, overflow of half precision) and at the values that go into it.",
    "argument": "Both runs make this call with different arguments. Make them the same before looking at numbers.",
    "input": "This input already differs, and no call before it that was recorded. Follow where it comes from: "
    "the data of the batch, an in-place call that overwrote it, or code that was not recorded.",
    "parameter": "This parameter differs although nothing before it does: the weights are not the same. "
    "Load the same checkpoint or set the same seed on both sides.",
    "output": "The inputs of this call agree and its output does not: its forward computation is to be checked.",
    "extra_call": "The target makes a call that the bench does not make, and what follows differs.",
    "backward": "The gradients that come in agree and those that go out do not: the backward computation of this "
    "call is to be checked.",
    "parameters_grad": "All calls agree, forward and backward, and this gradient of a parameter does not: look at what "
    "happens to gradients between backward and here (hooks, accumulation, reduction between ranks).",
    "saved": "This saved value is the first that differs.",
}
_RANDOM = ("conv2d", "conv3d", "matmul", "nll_loss", "layer_norm", "lstm")
_RANDOM_ADVICE = "It may be a kernel that is not deterministic: turn on deterministic mode with seed_all(mode=True)."
_MOST_NAMED = 5


def advice_text(comparison: Comparison) -> str:
    """The content of the advisor's file."""
    suspect = find_suspect(comparison)
    advice = "\n".join([*_advice(comparison, suspect), *unmatched_lines(comparison)])
    line, name = ("NA", "NA") if suspect is None else (str(suspect.row), comparison.candidate.name[suspect.row])
    return f"Line: {line}\nSuspect Nodes: {name}\nExpert Advice: {advice}\n"


def unmatched_lines(comparison: Comparison) -> list[str]:
    """What one side alone has, in a sentence for each side; empty if all rows have a partner."""
    lines = []
    for side, other, rows, found in (
        ("target", "bench", comparison.candidate, (~comparison.pairing.matched).nonzero()[0]),
        ("bench", "target", comparison.reference, comparison.pairing.reference_only),
    ):
        if not len(found):
            continue
        names = list(dict.fromkeys(rows.entries[number] for number in rows.entry[found].tolist()))
        shown = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
        lines.append(f"{len(found)} rows of the {side} have no partner in the {other}: {shown}.")
    return lines


def _advice(comparison: Comparison, suspect: Suspect | None) -> list[str]:
    if suspect is None:
        return [_NOTHING]
    lines = [_ADVICE[suspect.kind], *suspect.evidence]
    name = comparison.candidate.name[suspect.row]
    if suspect.kind in ("output", "backward") and any(word in name for word in _RANDOM):
        lines.append(_RANDOM_ADVICE)
    return lines
