"""The acceptance cases of the first bad value over four ranks, written call by call."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.hand_made import write_part

_VALUES = {"n": math.nan, "i": math.inf, "-i": -math.inf}
_ALL = (0, 1, 2, 3)


def leaf(value: str, **more: Any) -> dict[str, Any]:
    number = _VALUES[value] if value in _VALUES else float(value)
    statistics = {"Max": number, "Min": number, "Mean": number, "Norm": abs(number)}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 4], **statistics, **more}


class Ranks:
    """Records of four ranks, written call by call."""

    def __init__(self) -> None:
        self.data: dict[int, dict[str, Any]] = {rank: {} for rank in _ALL}
        self.counts: dict[tuple[int, str], itertools.count[int]] = {}

    def name(self, rank: int, api: str) -> str:
        collectives = ("all_reduce", "all_gather", "all_gather_single", "send", "recv", "broadcast", "reduce")
        prefix = "Distributed" if api in collectives else "Torch"
        counter = self.counts.setdefault((rank, api), itertools.count())
        return f"{prefix}.{api}.{next(counter)}.forward"

    def op(self, api: str, before: str, after: str, *ranks: int) -> Ranks:
        for rank in ranks or _ALL:
            record = {"input_args": [leaf(before)], "input_kwargs": {}, "output": [leaf(after)]}
            self.data[rank][self.name(rank, api)] = record
        return self

    def reduce_all(self, values: dict[int, tuple[str, str]] | tuple[str, str], group: tuple[int, ...] = _ALL) -> Ranks:
        for rank in group:
            before, after = values if isinstance(values, tuple) else values[rank]
            record = {"input_args": [leaf(before)], "input_kwargs": {}, "output": [leaf(after)]}
            record["process_group"] = {"type": "torch.ProcessGroup", "group_ranks": list(group)}
            self.data[rank][self.name(rank, "all_reduce")] = record
        return self

    def call(self, api: str, rank: int, args: list[Any], output: list[Any], **keywords: Any) -> Ranks:
        plain = {key: {"type": "int", "value": value} for key, value in keywords.items()}
        self.data[rank][self.name(rank, api)] = {"input_args": args, "input_kwargs": plain, "output": output}
        return self

    def write(self, folder: Path) -> Path:
        """Write ``step0/rank{R}`` of each rank that has records; returns the folder of the step."""
        for rank, data in self.data.items():
            if data:
                write_part(folder / "step0" / f"rank{rank}", data)
        return folder / "step0"


def c01() -> Ranks:
    ranks = Ranks().op("mul", "1", "1").op("div", "1", "i", 2)
    ranks.reduce_all({0: ("1", "i"), 1: ("1", "i"), 2: ("i", "i"), 3: ("1", "i")})
    return ranks.op("add", "i", "i")


def c02() -> Ranks:
    ranks = Ranks().reduce_all(("1", "4")).op("mul", "4", "4").op("log", "4", "1", 0, 1, 2).op("log", "4", "n", 3)
    return ranks.reduce_all({0: ("1", "n"), 1: ("1", "n"), 2: ("1", "n"), 3: ("n", "n")}).op("add", "n", "n")


def c03() -> Ranks:
    return Ranks().reduce_all(("1", "4")).op("mul", "4", "4").reduce_all(("6e4", "i")).op("add", "i", "i")


def c04() -> Ranks:
    return Ranks().reduce_all(("1", "4")).op("exp", "4", "1", 1, 2, 3).op("exp", "4", "i", 0)


def c05(second: bool = True) -> Ranks:
    ranks = Ranks().reduce_all(("1", "4"), (0, 1)).op("sub", "4", "-1", 0).op("sqrt" if second else "log", "-1", "n", 0)
    if second:
        ranks.reduce_all(("1", "1"), (0, 1))
    ranks.call("send", 0, [leaf("n")], [leaf("n")], dst=1).call("recv", 1, [leaf("0")], [leaf("n")], src=0)
    return ranks.op("add", "n", "n", 1).op("mul", "1", "1", 2, 3).reduce_all(("1", "1"), (2, 3))


def c07() -> Ranks:
    ranks = Ranks().reduce_all(("1", "1"), (0, 1)).reduce_all(("1", "1"), (2, 3)).op("mul", "1", "1")
    ranks.op("softmax", "2", "n", 2).reduce_all(("1", "1"), (0, 1)).reduce_all({2: ("n", "n"), 3: ("1", "n")}, (2, 3))
    ranks.op("add", "n", "n", 2, 3).op("add", "1", "1", 0, 1)
    ranks.reduce_all({0: ("1", "n"), 2: ("n", "n")}, (0, 2)).reduce_all({1: ("1", "n"), 3: ("n", "n")}, (1, 3))
    return ranks.op("add", "n", "n")


def c08() -> Ranks:
    ranks = Ranks().op("div", "1", "i", 0).op("log", "1", "n", 2).op("mul", "1", "1", 1, 3)
    return ranks.reduce_all({0: ("i", "n"), 1: ("1", "n"), 2: ("n", "n"), 3: ("1", "n")})


def c09() -> Ranks:
    ranks = Ranks().reduce_all(("1", "4")).op("mul", "4", "4").op("exp", "4", "i", 1)
    for rank in _ALL:
        before = "i" if rank == 1 else "0"
        ranks.call("broadcast", rank, [leaf(before)], [leaf("i")], src=1)
    return ranks.op("add", "i", "i")


def c10() -> Ranks:
    ranks = Ranks().reduce_all(("1", "4")).op("mul", "4", "4").op("exp", "4", "i", 3)
    for rank in _ALL:
        own = leaf("i" if rank == 3 else "4")
        parts = [leaf("4"), leaf("4"), leaf("4"), leaf("i")]
        ranks.call("all_gather", rank, [[leaf("n")] * 4, own], [parts, own])
    return ranks.op("cat", "i", "i")


def c11() -> Ranks:
    ranks = Ranks().op("empty", "0", "n").op("fill_", "n", "0").reduce_all(("0", "0")).op("empty_like", "1", "n")
    return ranks.op("add", "1", "1")


def c12() -> Ranks:
    ranks = Ranks().op("mul", "1", "1").reduce_all(("1", "1"), (0, 1, 2))
    return ranks.op("log", "1", "n", 3)


def c13() -> Ranks:
    ranks = Ranks().reduce_all(("1", "1")).op("mul", "1", "1").op("log", "4", "n", 1).reduce_all(("1", "4"))
    ranks.op("mul", "4", "4").reduce_all({0: ("1", "n"), 1: ("n", "n"), 2: ("1", "n"), 3: ("1", "n")})
    return ranks.op("add", "n", "n")


def c14() -> Ranks:
    ranks = Ranks().reduce_all(("1", "4")).op("mul", "4", "4").op("log", "4", "1", 0, 1, 3).op("log", "4", "n", 2)
    for rank in _ALL:
        before = "n" if rank == 2 else "1"
        ranks.call("reduce", rank, [leaf(before)], [leaf("n" if rank in (0, 2) else "1")], dst=0)
    return ranks


def c15() -> Ranks:
    ranks = Ranks().op("mul", "1", "1", 0, 2, 3).op("mul", "n", "n", 1)
    return ranks.reduce_all({0: ("1", "n"), 1: ("n", "n"), 2: ("1", "n"), 3: ("1", "n")})


#: Each case, and where bad values come from first in it.
CASES: list[tuple[Callable[[], Ranks], list[tuple[int, str]]]] = [
    (c01, [(2, "Torch.div.0.forward")]),
    (c02, [(3, "Torch.log.0.forward")]),
    (c04, [(0, "Torch.exp.0.forward")]),
    (c05, [(0, "Torch.sqrt.0.forward")]),
    (lambda: c05(second=False), [(0, "Torch.log.0.forward")]),
    (c07, [(2, "Torch.softmax.0.forward")]),
    (c08, [(0, "Torch.div.0.forward"), (2, "Torch.log.0.forward")]),
    (c09, [(1, "Torch.exp.0.forward")]),
    (c10, [(3, "Torch.exp.0.forward")]),
    (c11, []),
    (c12, [(3, "Torch.log.0.forward")]),
    (c13, [(1, "Torch.log.0.forward")]),
    (c14, [(2, "Torch.log.0.forward")]),
    (c15, [(1, "Torch.mul.0.forward")]),
]
