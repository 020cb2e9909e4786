"""The words of the columns "Accuracy Reached or Not" and "Result".

Source of rules and thresholds: mindstudio-probe 8.1.1.
"""

from __future__ import annotations

from msprobe.compare.measures_tensor import NOT_AVAILABLE, SHAPE_UNMATCHED, TensorMeasures

YES, NO, UNMATCHED, NONE = "Yes", "No", "Unmatched", "None"
WARNING, PASS, DIFFERENT = "Warning", "pass", "Different"

_LEAST_COSINE, _SURE_COSINE = 0.9, 0.99
_MOST_ERROR, _SURE_ERROR = 1.0, 0.001


def accuracy(measures: TensorMeasures) -> str:
    """YES, NO, UNMATCHED or NONE for the measures of one pair of tensors."""
    cosine, error = measures.cosine, measures.max_absolute
    if cosine == SHAPE_UNMATCHED:
        return UNMATCHED
    if NOT_AVAILABLE in (cosine, error):
        return NO
    try:
        similar, off = float(cosine), float(error)
    except ValueError:
        return NONE
    if similar < _SURE_COSINE and off > _SURE_ERROR:
        return NO
    return NO if similar < _LEAST_COSINE or off > _MOST_ERROR else YES


def digest_result(candidate: str | None, reference: str | None, matched: bool) -> str:
    """PASS or DIFFERENT; "N/A" where there is nothing to compare, two nulls included."""
    if not matched or candidate in (None, NOT_AVAILABLE) or reference in (None, NOT_AVAILABLE):
        return NOT_AVAILABLE if not matched or candidate == reference else DIFFERENT
    return PASS if candidate == reference else DIFFERENT
