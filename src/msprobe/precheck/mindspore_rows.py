"""The files of a check of MindSpore calls, and the verdict in them (mindstudio-probe 8.1.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msprobe.errors import InvalidInputError
from msprobe.messages import joined, said
from msprobe.precheck.columns import JudgedResult
from msprobe.precheck.executors import executor_of
from msprobe.precheck.job import MINDSPORE_ATOL, Answer, Task
from msprobe.precheck.known_names import REFUSED
from msprobe.precheck.side.cosine import judge_by_cosine
from msprobe.precheck.side.words import Executor, Fault

RESULT_HEADER = ("API Name", "Forward Test Success", "Backward Test Success", "Message")
DETAILS_HEADER = (
    *("API Name", "Bench Dtype", "Tested Dtype", "Shape", "Cosine", "MaxAbsErr", "MaxRelativeErr", "Status", "Message"),
)
_FAULTS = ("scale", "nan", "inf", "drop-tail")
_API_TYPES = ("Mint", "MintFunctional")
_TENSOR_APIS = frozenset(
    """add_ add addmm_ all allclose any bool byte ceil clamp contiguous copy_ cos clone cumprod expand_as flatten float
    half int is_contiguous isnan item log log2 long masked_fill max mean min numel numpy repeat repeat_interleave
    reshape round select sin size split sqrt square sub swapaxes to t tolist topk transpose trunc type
    unsqueeze view view_as fill_ floor_ clamp_ type_as zero_""".split()
)


def is_checked(key: str) -> bool:
    """True for calls that are checked; the others have no row."""
    prefix, _, rest = key.partition(".")
    parts = rest.split(".")[:-1]
    if any(not part.isidentifier() or part in REFUSED for part in parts):
        return False
    return prefix in _API_TYPES or (prefix == "Tensor" and rest.rpartition(".")[0] in _TENSOR_APIS)


def demand_known(candidates: Sequence[str], task: Task, save_errors: bool) -> None:
    """Calls of MindSpore run where that itself runs, beside double precision: all that is asked for beyond is refused.

    Raises InvalidInputError.
    """
    mistakes: list[str] = [
        said("mindspore-candidate-allowed", text, ", ".join(_FAULTS))
        for text in candidates
        if not _is_known(executor_of(text))
    ]
    given = {
        "--control": task.control,
        "--modules": task.modules,
        "--load": task.load,
        "--operators": task.operators,
        "--clean-output": task.cleaning,
        "--repeat": task.repeat > 1,
        "--gradcheck": task.formula,
        "-save_error_data": save_errors,
    }
    mistakes += [name for name, value in given.items() if value]
    if mistakes:
        raise InvalidInputError(said("not-for-mindspore", joined("; ", mistakes)))


def _is_known(plan: Executor) -> bool:
    bare = Executor(plan.text, plan.device, fault=plan.fault, python=plan.python)
    kind = plan.device.partition(":")[0]
    return plan == bare and kind in ("cpu", "auto") and (plan.fault is None or plan.fault.kind in _FAULTS)


def spoiled(value: tuple[Any, str], fault: Fault | None) -> tuple[Any, str]:
    """A result, an array and the word of its type, with the fault that was asked for."""
    array, word = value
    if fault is None or not isinstance(array, np.ndarray) or array.dtype.kind != "f" or not array.size:
        return value
    if fault.kind == "scale":
        return (array * (1 + fault.amount)).astype(array.dtype), word
    flat = array.flatten()
    if fault.kind == "drop-tail":
        flat[-max(1, flat.size // 16) :] = 0
    else:
        flat[fault.place % flat.size] = float(fault.kind)
    return flat.reshape(array.shape), word


@dataclass
class MindSporeRow(JudgedResult):
    """One result of a call."""

    cosine: float | None = None
    max_abs: float | None = None
    max_relative: float | None = None

    def cells(self, *unused: Any) -> list[str]:
        """The line of the details file; floats are written so that they can be read back exactly."""
        numbers = ("" if n is None else repr(float(n)) for n in (self.cosine, self.max_abs, self.max_relative))
        shape = "" if self.shape is None else str(self.shape)
        bench, device = self.bench_dtype.strip(), self.device_dtype.strip()
        return [self.name, bench, device, shape, *numbers, self.status, self.message]


def judge(name: str, bench: tuple[Any, str], tested: tuple[Any, str], atol: float = MINDSPORE_ATOL) -> MindSporeRow:
    """Compare one result; each side is an array (or a plain value) and the word of its type. ``atol``: below which
    largest difference it passes.
    """
    (ours, our_type), (theirs, their_type) = bench, tested
    judged = judge_by_cosine(ours, theirs, their_type, atol)
    row = MindSporeRow(name, judged.status, judged.message, our_type, their_type)
    if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray):
        row.shape = tuple(theirs.shape)
    row.cosine, row.max_abs, row.max_relative = judged[2:]
    return row


def skipped(key: str, message: str, has_backward: bool) -> Answer:
    """The answer for a call that was not checked."""
    directions = ["forward", *(["backward"] if has_backward else [])]
    rows = [MindSporeRow(f"{key}.{direction}.output.0", "SKIP", message) for direction in directions]
    result = [key, "SKIP", "SKIP" if has_backward else "", message]
    return Answer(key, result, [row.cells() for row in rows])
