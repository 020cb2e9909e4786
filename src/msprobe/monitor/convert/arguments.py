"""What conversions are asked for: checked before anything is read; all mistakes at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from msprobe import engine
from msprobe.config.mistakes import did_you_mean, ended
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.monitor.files import RunFolder, stamp_of

MOST_PROCESSES = 128

#: In the order of mindstudio-probe; others are not converted to TensorBoard.
DATA_TYPES = (
    "actv", "actv_grad", "exp_avg", "exp_avg_sq", "grad_unreduced", "grad_reduced", "param_origin", "param_updated",
)  # fmt: skip

_Result = TypeVar("_Result")


class ConversionArgumentError(InvalidInputError, ValueError, RuntimeError):
    """An argument of a conversion is wrong. Scripts for mindstudio-probe expect a ValueError, or a RuntimeError for a
    timestamp.
    """


def raise_all(wrong: Sequence[str]) -> None:
    """Raise ConversionArgumentError if there is anything wrong."""
    if wrong:
        raise ConversionArgumentError(" ".join(map(ended, wrong)))


def wrong_process_number(number: object) -> list[str]:
    """What is wrong with the number of processes."""
    if isinstance(number, bool) or not isinstance(number, int) or number <= 0:
        return [said("process-number-wrong", number)]
    if number > MOST_PROCESSES:
        return [said("process-number-too-large", number, MOST_PROCESSES)]
    return []


def wrong_data_types(names: object) -> list[str]:
    """What is wrong with a list of data types."""
    if names is None:
        return []
    if not isinstance(names, (list, tuple)) or not names:
        return [said("data-type-list-wrong", ", ".join(DATA_TYPES), names)]
    return [
        said("data-type-not-supported", name, ", ".join(DATA_TYPES), did_you_mean(name, DATA_TYPES))
        for name in names
        if name not in DATA_TYPES
    ]


def wrong_times(begin: object, end: object) -> list[str]:
    """What is wrong with the first and the last timestamp, each of which may be None."""
    wrong: list[str] = []
    known = []
    for name, text in (("time_start", begin), ("time_end", end)):
        try:
            known.append(None if text is None else stamp_of(text, name))
        except InvalidInputError as problem:
            wrong.append(problem.message)
    if not wrong and None not in known and known[0] > known[1]:  # type: ignore[operator]
        wrong.append(said("times-in-wrong-order", begin, end))
    return wrong


def between(runs: Iterable[RunFolder], begin: str | None, end: str | None) -> list[RunFolder]:
    """The runs whose folder's stamp is not before ``begin`` and not after ``end``."""
    return [
        run
        for run in runs
        if (begin is None or stamp_of(run.stamp) >= stamp_of(begin))
        and (end is None or stamp_of(run.stamp) <= stamp_of(end))
    ]


def each(job: Callable[..., _Result], tasks: Sequence[tuple[Any, ...]], processes: int) -> list[_Result]:
    """The results of the job for all tasks, in their order; in processes of their own if there are several."""
    if processes == 1 or len(tasks) < 2:
        return [job(*task) for task in tasks]
    return list(engine.run(functools.partial(_spread, job), tasks, engine.Workers(processes)))


def _spread(job: Callable[..., _Result], task: tuple[Any, ...]) -> _Result:
    return job(*task)
