"""One result of a call: the reference's beside the candidate's, as arrays, and what the profile says of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from msprobe.compare.number_types import epsilon_of
from msprobe.messages import said
from msprobe.precheck import metrics, standards
from msprobe.precheck.columns import JudgedResult
from msprobe.precheck.compiler_rule import root_mean_square
from msprobe.precheck.first_verdict import dropout_verdict, first_verdict
from msprobe.precheck.metrics import Array
from msprobe.precheck.side.strict import judge_close, judge_direction, judge_exact, judge_floats
from msprobe.precheck.standards import Profile

#: Below this share of elements that are off by more than a unit, results of 8 bits pass (26.2).
FLOAT8_SHARE = 0.001
_MEASURED = ("float16", "bfloat16", "float32")


@dataclass
class Value:
    """One tensor as an array. ``dtype`` is the framework's full word (``torch.bfloat16``); bfloat16 comes as float32,
    complex numbers as a last dimension of two. ``shape`` is that of the tensor.
    """

    array: Array
    dtype: str
    shape: tuple[int, ...]

    @property
    def kind(self) -> str:
        """The type without its prefix, that of the parts of complex numbers."""
        word = self.dtype.rpartition(".")[2]
        return {"complex64": "float32", "complex128": "float64", "complex32": "float16"}.get(word, word)

    @property
    def is_complex(self) -> bool:
        """True for complex numbers."""
        return "complex" in self.dtype

    @property
    def is_float(self) -> bool:
        """True for float and complex numbers."""
        return self.array.dtype.kind == "f"


@dataclass
class ResultPair:
    """One result of both sides; each a :class:`Value`, a plain Python value or None.

    ``rounded``: the reference rounded to the candidate's type, ``movement``: how far disturbed inputs move each
    element, ``elementwise``: each element depends only on what is at its place in the arguments, ``taken``: where a
    result that computes nothing has numbers of its arguments, which have its type, to ``taken_units`` (strict only).
    ``ordinary``: what a kernel of the CPU of the same type gives that is not in question. ``computed_in``: the type in
    which the result was computed, where that is coarser than its own (``bfloat16``). ``from_float8``: arguments are
    floats of 8 bits.
    """

    name: str
    bench: Any
    device: Any
    rounded: Array | None = None
    movement: Array | None = None
    elementwise: bool = False
    taken: Array | None = None
    taken_units: float = 0.0
    ordinary: Array | None = None
    computed_in: str = ""
    from_float8: bool = False


def judge(pair: ResultPair, api: str, profile: Profile, dropout: bool = False) -> JudgedResult:
    """The row of one result. ``api``: the name without type and number."""
    bench, device = pair.bench, pair.device
    if bench is None and device is None:
        return JudgedResult(pair.name, "SKIP", said("result-is-none"))
    if isinstance(bench, Value) != isinstance(device, Value):
        return JudgedResult(pair.name, "error", said("result-kinds-differ", _kind(device), _kind(bench)))
    if not isinstance(bench, Value):
        return _judge_plain(pair, profile)
    row = JudgedResult(pair.name, "pass", "", bench.dtype, device.dtype, device.shape)
    if bench.shape != device.shape:
        row.status, row.message = "error", said("result-shapes-differ", device.shape, bench.shape)
    elif problem := _cannot_compare(bench, device, profile):
        row.status, row.message = "error", problem
    elif device.array.size == 0:
        row.status = profile.empty_result
        row.message = "" if row.status == "pass" else said("result-without-elements")
    elif dropout:
        row.status = dropout_verdict(bench.array, device.array)
    elif not device.is_float:
        _judge_whole_numbers(row, pair, bench, device, api, profile)
    else:
        _judge_float(row, pair, bench, device, api, profile)
    return row


def _kind(value: Any) -> str:
    return "tensor" if isinstance(value, Value) else type(value).__name__


def _judge_plain(pair: ResultPair, profile: Profile) -> JudgedResult:
    bench, device = pair.bench, pair.device
    row = JudgedResult(pair.name, "pass", "", str(type(bench)), str(type(device)), ())
    numbers = isinstance(bench, (int, float)) and isinstance(device, (int, float))
    if not numbers and type(bench) is not type(device):
        row.status, row.message = "error", said("result-kinds-differ", _kind(device), _kind(bench))
        return row
    equal = bench == device or (bench != bench and device != device)
    if not equal and pair.movement is not None and profile.by_element and numbers:
        equal = abs(bench - device) <= 32 * float(np.max(pair.movement))
    row.metrics["unequal"] = 0 if equal else 1
    if not equal:
        row.status, row.message = "error", said("value-differs", device, bench)
    return row


def _cannot_compare(bench: Value, device: Value, profile: Profile) -> str:
    if bench.is_complex or device.is_complex:
        if not profile.own:
            return said("complex-not-judged", device.dtype)
        if bench.is_complex != device.is_complex:
            return said("result-types-differ", device.dtype, bench.dtype)
    b, d = bench.array.dtype.kind, device.array.dtype.kind
    words = bench.kind, device.kind
    if b == "f" or d == "f":
        return "" if b == d else said("result-types-differ", device.dtype, bench.dtype)
    if profile.own:
        return "" if words[0] == words[1] else said("result-types-differ", device.dtype, bench.dtype)
    for group in (("bool", "uint8"), ("int32", "int64")):
        if words[0] in group and words[1] in group:
            return ""
    if words[0] == words[1] and words[0] in profile.small_integers:
        return ""
    return said("types-not-comparable", device.dtype, bench.dtype)


def _judge_float8(row: JudgedResult) -> None:
    """The verdict of 26.2 on a result of 8 bits: the share of elements that are off by more than a unit."""
    share = row.metrics["ulp_share"]
    row.status = "pass" if share < FLOAT8_SHARE else "error"
    row.message = "" if row.status == "pass" else said("share-off-by-a-unit", share)


def _judge_whole_numbers(
    row: JudgedResult, pair: ResultPair, bench: Value, device: Value, api: str, profile: Profile
) -> None:
    row.metrics["unequal"] = share = metrics.unequal_share(bench.array, device.array)
    if profile.own:
        moves = pair.movement > 0 if pair.movement is not None and profile.by_element else None
        verdict = judge_exact(bench.array, device.array, moves)
        row.status, row.message, row.index, row.scaled = verdict.status, verdict.message, verdict.index, verdict.scaled
        return
    if share:
        row.status, row.message = "error", said("share-differs", share)
        if profile.name == "26.2" and api in _QUANTIZED:
            far = np.max(np.abs(device.array.astype(np.int64) - bench.array.astype(np.int64)))
            if far <= 1:
                row.status, row.message = "pass", ""


_QUANTIZED = ("npu_rms_norm_dynamic_quant", "npu_dynamic_quant", "npu_quant_lightning_indexer")


def _judge_float(row: JudgedResult, pair: ResultPair, bench: Value, device: Value, api: str, profile: Profile) -> None:
    b, d, dtype = bench.array, device.array, device.kind
    standard = "benchmark" if profile.benchmark_for_floats else standards.standard_of(api)
    is_float8 = standards.is_float8(dtype) and profile.name == "26.2"
    if is_float8:
        standard = "ulp"
    elif pair.from_float8 and profile.name == "26.2":
        standard = "absolute"
    if dtype in _MEASURED or is_float8:
        row.metrics.update(metrics.measure(standard, b, d, dtype))
    if profile.by_tolerance:
        row.metrics.update(first_verdict(b, d, dtype, standards.PROFILES["8.1.1"])[1])
        if profile.by_control:
            row.metrics["rmse"] = root_mean_square(b, d)
        verdict = judge_close(b.astype(np.float64), d.astype(np.float64), *standards.TOLERANCES.get(dtype, (0.0, 0.0)))
        row.status, row.message, row.index = verdict.status, verdict.message, verdict.index
        _judge_direction(row, pair, bench, device)
        return
    if not profile.by_element:
        row.status, measured, row.message = first_verdict(b, d, dtype, profile)
        row.metrics.update(measured)
        if is_float8:
            _judge_float8(row)
        elif dtype not in _MEASURED and not row.message:
            row.message = said("first-verdict-alone", device.dtype)
        return
    verdict_rows = first_verdict(b, d, dtype, standards.PROFILES["8.1.1"])[1]
    row.metrics.update(verdict_rows)
    wide = b.astype(np.float64)
    rounded = wide if pair.rounded is None else pair.rounded
    verdict = judge_floats(
        wide,
        rounded,
        d.astype(np.float64),
        pair.computed_in or dtype,
        pair.movement,
        pair.elementwise,
        pair.taken,
        pair.taken_units,
    )
    row.status, row.message = verdict.status, verdict.message
    row.index, row.p99, row.scaled = verdict.index, verdict.p99, verdict.scaled
    if pair.taken is None or pair.taken_units:
        _judge_direction(row, pair, bench, device)


def _judge_direction(row: JudgedResult, pair: ResultPair, bench: Value, device: Value) -> None:
    """Make the row worse where the errors of its result go one way, as those of rounding do not."""
    wide = bench.array.astype(np.float64)
    rounded = wide if pair.rounded is None else pair.rounded
    dtype = pair.computed_in or device.kind
    directed = judge_direction(
        wide, rounded, device.array.astype(np.float64), dtype, epsilon_of(dtype), pair.movement, pair.elementwise,
        pair.ordinary,
    )  # fmt: skip
    row.slope, row.directed = (directed.slope, directed.standard_error), directed.strength
    order = ("pass", "Warning", "error")
    if row.status in order and order.index(directed.status) > order.index(row.status):
        row.status, row.message = directed.status, directed.message
