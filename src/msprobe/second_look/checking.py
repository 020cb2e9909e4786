"""Each call of a recording computed again in double precision from its own inputs: is its result right?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msprobe.compare.number_types import epsilon_of
from msprobe.errors import NotAvailableError
from msprobe.messages import said
from msprobe.precheck.columns import DEVICE_DTYPE, SLOPE, STATUS
from msprobe.precheck.executors import RECORDED
from msprobe.precheck.job import Answer, Task
from msprobe.precheck.pool import Pool
from msprobe.precheck.requests import Requests, open_requests
from msprobe.precheck.slopes import SlopePool as Slopes
from msprobe.signed_errors import way_of

#: ``right``: as far off as rounding makes it. ``wrong``: further, beyond doubt. ``unsure``: further, and healthy
#: devices have that, too. ``skipped``: nobody can compute it.
Answered = Literal["right", "wrong", "unsure", "skipped"]

_SECONDS = 600.0
_DIRECTIONS = ("forward", "backward")
#: So many standard errors make a direction of errors sure.
_CERTAIN = 6.0


@dataclass(frozen=True)
class CheckedRecord:
    """What was found of one record. ``why``: in words, empty where it is right."""

    answered: Answered
    why: str = ""


def workers() -> Pool:
    """Who computes calls: one process, which starts with the first of them."""
    return Pool([Task("", candidate=RECORDED)], _SECONDS)


def check_calls(dump: Path, calls: Iterable[str], pool: Pool) -> dict[str, CheckedRecord]:
    """The records of these calls in ``dump`` (a ``dump.json`` with task tensor), by their names
    (``Functional.linear.3.forward``) and in their order there. Raises MsprobeError where the dump cannot be read or no
    worker starts, and NotAvailableError for one of MindSpore.
    """
    requests = open_requests(str(dump))
    wanted = set(calls)
    keys = [key for key in requests.keys if key in wanted]
    if requests.framework == "mindspore":
        raise NotAvailableError(said("second-look-mindspore", dump))
    todo = [(key, requests.has_backward(key)) for key in keys]
    answers = list(pool.answers(todo, str(dump.absolute()))) if todo else []
    one_way = _one_way(answers)
    checked: dict[str, CheckedRecord] = {}
    for answer in answers:
        for direction in _DIRECTIONS:
            if direction == "forward" or requests.has_backward(answer.key):
                checked[f"{answer.key}.{direction}"] = _checked(answer, direction, one_way)
    return _in_order(requests, checked)


def _in_order(requests: Requests, checked: dict[str, CheckedRecord]) -> dict[str, CheckedRecord]:
    return {name: checked[name] for name in requests.part.names() if name in checked}


def _checked(answer: Answer, direction: str, one_way: dict[str, tuple[float, str]]) -> CheckedRecord:
    rows = [row for row in answer.details if row[0].startswith(f"{answer.key}.{direction}.")]
    judged = [row for row in rows if len(row) > STATUS and row[STATUS] != "SKIP"]
    if not judged:
        reason = next((row[STATUS + 1] for row in rows if len(row) > STATUS + 1), answer.result[3])
        return CheckedRecord("skipped", reason.strip())
    for row in judged:
        if row[STATUS].lower() == "error":
            return CheckedRecord("wrong", row[STATUS + 1].strip())
    for row in judged:
        pooled = one_way.get(_pool_of(answer, row))
        if pooled is not None and _goes_with(row, pooled[0]):
            return CheckedRecord("wrong", pooled[1])
        if row[STATUS].lower() == "warning" and _certainty(row) >= _CERTAIN:
            return CheckedRecord("wrong", row[STATUS + 1].strip())
    warned = next((row for row in judged if row[STATUS].lower() == "warning"), None)
    return CheckedRecord("right") if warned is None else CheckedRecord("unsure", warned[STATUS + 1].strip())


def _goes_with(row: list[str], slope: float) -> bool:
    """True if a result is off by what all calls of its API are off together; one wrong call among right ones makes
    these no worse.
    """
    return len(row) > SLOPE and bool(row[SLOPE].strip()) and float(row[SLOPE]) / slope >= 0.5


def _one_way(answers: Iterable[Answer]) -> dict[str, tuple[float, str]]:
    """The results of an API that are too large, or too small, over all its calls; each with by how much, as a number
    and in words.
    """
    slopes: dict[str, tuple[Slopes, float]] = {}
    for answer in answers:
        for row in answer.details:
            if len(row) > SLOPE + 1 and row[STATUS] != "SKIP" and row[SLOPE].strip():
                unit = epsilon_of(row[DEVICE_DTYPE].rpartition(".")[2])
                pool, _ = slopes.setdefault(_pool_of(answer, row), (Slopes(), unit))
                pool.add(float(row[SLOPE]), float(row[SLOPE + 1]))
    texts: dict[str, tuple[float, str]] = {}
    for name, (pool, unit) in slopes.items():
        if pool.status(unit) != "pass":
            text = said("pooled-too-far", pool.count, 100 * abs(pool.fit.size), way_of(pool.fit))
            texts[name] = pool.fit.size, text
    return texts


def _pool_of(answer: Answer, row: list[str]) -> str:
    return f"{answer.key.rpartition('.')[0]}{row[0].removeprefix(answer.key)} {row[DEVICE_DTYPE]}"


def _certainty(row: list[str]) -> float:
    if len(row) <= SLOPE + 1 or not row[SLOPE].strip():
        return 0.0
    slope, error = float(row[SLOPE]), float(row[SLOPE + 1])
    return abs(slope) / error if error else 0.0
