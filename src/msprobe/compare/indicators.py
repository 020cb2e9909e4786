"""What the form 26.2 says of each row: errors and warnings.

Source of rules and thresholds: mindstudio-probe 26.2.0; the sentences are ours. Ours, too: a NaN in the target alone,
data that cannot be read, and rows without a partner do not pass in silence.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from msprobe.compare.comparison import RowComparison
from msprobe.compare.entry_names import read_name
from msprobe.compare.matching import SAME
from msprobe.compare.measures_tensor import NOT_AVAILABLE, SHAPE_UNMATCHED, UNSUPPORTED
from msprobe.compare.rows import GRADIENT, INPUT, OUTPUT, PARAMETER, Numbers
from msprobe.compare.values_of_pair import is_unreadable
from msprobe.messages import Wording, both

RowSentences = dict[int, list[str]]

#: Their results came from other ranks, so nothing follows from their arguments.
FROM_OTHER_RANKS = frozenset(("_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"))
_NOT_JUDGED = frozenset(
    (
        *("empty", "empty_like", "numpy", "to", "__setitem__"),
        *("empty_with_format", "new_empty_strided", "new_empty", "empty_strided"),
    )
)

NONFINITE = both(
    "error: The maximum or minimum of the target is NaN or infinite, that of the bench is not.",
    "error: 待比对侧的最大值或最小值为 NaN 或无穷，标杆侧不是。",
)
RATIO = both(
    "error: The one-thousandth ratio of the inputs is above 0.9, that of an output below 0.1.",
    "error: 输入的千分之一误差比例高于 0.9，而某个输出低于 0.1。",
)
NORM = both(
    "error: The norm of an output is off by more than 0.5, those of the inputs by less than 0.1.",
    "error: 某个输出的范数偏差超过 0.5，而输入小于 0.1。",
)
NORM_GREW = both(
    "warning: The relative error of the norm of an output is more than ten times that of the inputs.",
    "warning: 某个输出的范数相对误差超过输入的十倍。",
)
COSINE = both(
    "warning: The cosine of the inputs is above 0.9, that of an output lower by more than 0.1.",
    "warning: 输入的余弦高于 0.9，而某个输出低 0.1 以上。",
)
GRAD = both("error: requires_grad differs.", "error: requires_grad 不同。")
SCALAR = both("error: The two values differ.", "error: 两侧的值不同。")
DTYPE = both("error: The element types differ.", "error: 元素类型不同。")
SHAPE = both("error: The shapes differ.", "error: shape 不同。")
DIGEST = both("error: The digests differ.", "error: 摘要不同。")
ALONE = both("warning: The bench has no such row.", "warning: 标杆侧没有这一行。")
PLACES = both("error: NaN or infinities are not at the same places.", "error: 两侧 NaN 或无穷的位置不同。")


def indicators(comparison: RowComparison) -> RowSentences:
    """The sentences of each row that has some."""
    sentences: RowSentences = {}
    judged = _judged(comparison)
    if comparison.mode == "md5":
        _digests(comparison, sentences)
    else:
        _say(sentences, NONFINITE, judged & comparison.statistics.new_nonfinite)
        if comparison.mode == "tensor":
            _tensor_rules(comparison, judged, sentences)
        else:
            _statistics_rules(comparison, judged, sentences)
        _common_rules(comparison, judged, sentences)
    return sentences


def _say(sentences: RowSentences, sentence: str, where: npt.NDArray[np.bool_]) -> None:
    for row in np.flatnonzero(where).tolist():
        sentences.setdefault(row, []).append(sentence)


def _judged(comparison: RowComparison) -> npt.NDArray[np.bool_]:
    ours = comparison.candidate
    words = [read_name(name).stem.rpartition(".")[2] not in _NOT_JUDGED for name in ours.entries]
    kept = np.array(words, np.bool_)[ours.entry] if words else np.zeros(0, np.bool_)
    return kept & comparison.pairing.matched


def _digests(comparison: RowComparison, sentences: RowSentences) -> None:
    words = np.array([word == "Different" for word in comparison.verdict], np.bool_)
    _say(sentences, DIGEST, words)
    _say(sentences, ALONE, ~comparison.pairing.matched)


def _common_rules(comparison: RowComparison, judged: npt.NDArray[np.bool_], sentences: RowSentences) -> None:
    ours, theirs = comparison.candidate, comparison.reference
    if not len(theirs):
        return
    partner = np.where(comparison.pairing.matched, comparison.pairing.partner, 0)
    _say(sentences, GRAD, judged & (ours.requires_grad != theirs.requires_grad[partner]))
    values = judged & ~ours.is_tensor & comparison.agreement.shape & ~comparison.agreement.null
    rows = np.flatnonzero(values).tolist()
    differ = np.zeros(len(ours), np.bool_)
    slices = [word == "slice" for word in ours.dtypes]
    for row in rows:
        differ[row] = ours.md5[row] != theirs.md5[int(partner[row])] and not slices[ours.dtype[row]]
    _say(sentences, SCALAR, differ)
    _say(sentences, DTYPE, judged & (comparison.agreement.dtype != SAME))
    _say(sentences, SHAPE, judged & ~comparison.agreement.shape)
    _say(sentences, ALONE, ~comparison.pairing.matched)


def _statistics_rules(comparison: RowComparison, judged: npt.NDArray[np.bool_], sentences: RowSentences) -> None:
    measures = comparison.statistics
    with np.errstate(all="ignore"):
        error = np.where(measures.comparable[3], measures.relative[3] / 100.0, np.nan)
        # Nothing is relative to 0: a norm that came out of nothing is infinitely wrong, an equal one not at all.
        error = np.where(measures.comparable[3] & (measures.difference[3] == 0), 0.0, error)
    given, made = _largest(comparison, error, _in(comparison)), _largest(comparison, error, _out(comparison))
    usable = judged & _input_rules(comparison) & _first_outputs(comparison)
    with np.errstate(all="ignore"):
        _say(sentences, NORM, usable & (given < 0.1) & (made > 0.5))
        grew = np.where(given == 0, made > 0.1, np.isfinite(made) & (made > 10 * given))
        _say(sentences, NORM_GREW, usable & ~np.isnan(given) & grew & np.isfinite(made))


def _tensor_rules(comparison: RowComparison, judged: npt.NDArray[np.bool_], sentences: RowSentences) -> None:
    tensors = comparison.tensors or []
    for row, measured in enumerate(tensors):
        if measured.cosine == UNSUPPORTED and any(map(is_unreadable, measured.notes)):
            sentences.setdefault(row, []).extend(Wording("{}: {}", "warning", note) for note in measured.notes)
        elif measured.cosine == NOT_AVAILABLE:
            sentences.setdefault(row, []).append(PLACES)
        elif measured.cosine == SHAPE_UNMATCHED and comparison.agreement.shape[row]:
            sentences.setdefault(row, []).append(SHAPE)
    nan = float("nan")
    numbers = np.array(
        [[value if isinstance(value, float) else nan for value in (m.cosine, m.one_thousandth)] for m in tensors]
    ).reshape(-1, 2)
    cosine, ratio = numbers[:, 0], numbers[:, 1]
    usable = judged & _input_rules(comparison) & _first_outputs(comparison)
    least_in, least_out = (-_largest(comparison, -ratio, chosen(comparison)) for chosen in (_in, _out))
    cosine_in, cosine_out = (-_largest(comparison, -cosine, chosen(comparison)) for chosen in (_in, _out))
    # Inputs that cannot be compared are taken to agree: then the output is to blame.
    least_in = np.where(np.isnan(least_in), 1.0, least_in)
    with np.errstate(all="ignore"):
        _say(sentences, RATIO, usable & (least_in > 0.9) & (least_out < 0.1))
        _say(sentences, COSINE, usable & (cosine_in > 0.9) & (cosine_in - cosine_out > 0.1))


def _in(comparison: RowComparison) -> npt.NDArray[np.bool_]:
    state = comparison.candidate.state
    is_input: npt.NDArray[np.bool_] = ((state == INPUT) | (state == PARAMETER)) & comparison.candidate.is_tensor
    return is_input


def _out(comparison: RowComparison) -> npt.NDArray[np.bool_]:
    is_output: npt.NDArray[np.bool_] = comparison.candidate.state == OUTPUT
    return is_output


def _input_rules(comparison: RowComparison) -> npt.NDArray[np.bool_]:
    """Rows of records that are judged by what goes into them."""
    ours = comparison.candidate
    words = [read_name(name).stem.rpartition(".")[2] not in FROM_OTHER_RANKS for name in ours.entries]
    kept = np.array(words, np.bool_)[ours.entry] if words else np.zeros(0, np.bool_)
    chosen: npt.NDArray[np.bool_] = kept & (ours.state != GRADIENT)
    return chosen


def _first_outputs(comparison: RowComparison) -> npt.NDArray[np.bool_]:
    """The first output of each record, which bears what is said of all."""
    ours = comparison.candidate
    rows = np.flatnonzero(ours.state == OUTPUT)
    is_first = np.zeros(len(ours), np.bool_)
    if len(rows):
        entries = ours.entry[rows]
        is_first[rows[np.concatenate(([True], entries[1:] != entries[:-1]))]] = True
    return is_first


def _largest(comparison: RowComparison, values: Numbers, chosen: npt.NDArray[np.bool_]) -> Numbers:
    """For each row the largest of the chosen values of its record, NaN if there is none."""
    ours = comparison.candidate
    if not len(ours):
        return values
    known = np.where(chosen & ~np.isnan(values), values, -np.inf)
    reduced = np.maximum.reduceat(known, ours.starts)
    lengths = np.diff(np.append(ours.starts, len(ours)))
    largest: Numbers = np.repeat(np.where(reduced == -np.inf, np.nan, reduced), lengths)
    return largest
