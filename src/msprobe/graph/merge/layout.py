"""How a training is spread over ranks, and which ranks belong together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msprobe.errors import InvalidInputError
from msprobe.messages import Wording, joined, said

DEFAULT_ORDER = "tp-cp-ep-dp-pp"
_ORDER = re.compile(r"[a-z-]+")


@dataclass(frozen=True)
class ParallelLayout:
    """The sizes of one side. ``order``: the kinds of parallelism, the one that varies fastest first."""

    rank_size: int
    tp: int
    pp: int
    vpp: int = 1
    order: str = DEFAULT_ORDER

    @staticmethod
    def of(fields: Mapping[str, Any], where: str) -> ParallelLayout:
        """A checked layout. Raises InvalidInputError with all mistakes, which begin with ``where``."""
        mistakes: list[str] = []
        sizes: dict[str, int] = {}
        for name in ("rank_size", "tp", "pp", "vpp"):
            value = fields.get(name)
            if value is None and name == "vpp":
                value = 1
            if value is None:
                mistakes.append(said("layout-field-required", name))
            elif type(value) is not int or value < 1:
                mistakes.append(said("layout-number-wrong", name, repr(value)))
            else:
                sizes[name] = value
        order = fields.get("order") or DEFAULT_ORDER
        if not isinstance(order, str) or not _ORDER.fullmatch(order):
            mistakes.append(said("layout-order-form", repr(DEFAULT_ORDER), repr(order)))
        elif not {"tp", "pp"} <= set(order.split("-")):
            mistakes.append(said("layout-order-names", repr(order)))
        if not mistakes:
            mistakes = _misfits(**sizes)
        if mistakes:
            raise InvalidInputError(Wording("{}: {}.", where, joined("; ", mistakes)))
        return ParallelLayout(order=order, **sizes)

    @property
    def replicas(self) -> int:
        """How many copies of the model there are: the number of graphs that come out."""
        return self.rank_size // (self.tp * self.pp)

    def groups(self, kind: str) -> list[tuple[int, ...]]:
        """The ranks that differ only in ``tp`` or ``pp``.

        >>> Layout(8, 2, 2).groups("tp"), Layout(8, 2, 2).groups("pp")
        ([(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 4), (1, 5), (2, 6), (3, 7)])
        """
        strides: dict[str, tuple[int, int]] = {}
        stride = 1
        for name in dict.fromkeys(self.order.split("-")):
            size = {"tp": self.tp, "pp": self.pp, "dp": self.replicas}.get(name, 1)
            strides[name] = (stride, size)
            stride *= size
        step, size = strides[kind]
        groups: dict[int, list[int]] = {}
        for rank in range(self.rank_size):
            place = rank // step % size
            groups.setdefault(rank - place * step, []).append(rank)
        return [tuple(ranks) for ranks in groups.values()]


def _misfits(rank_size: int, tp: int, pp: int, vpp: int) -> list[str]:
    misfits: list[str] = []
    for name, size in (("tp", tp), ("pp", pp)):
        if size > rank_size:
            misfits.append(said("larger-than-rank-size", name, size, rank_size))
        elif rank_size % size:
            misfits.append(said("no-multiple-of", rank_size, name, size))
    if not misfits and tp * pp > rank_size:
        misfits.append(said("tp-times-pp-too-large", tp, pp, rank_size))
    if not misfits and rank_size % (tp * pp):
        misfits.append(said("tp-times-pp-no-divisor", rank_size, tp, pp))
    if vpp > 1 and pp == 1:
        misfits.append(said("vpp-needs-pp"))
    return misfits
