"""How a training is spread over ranks, and which ranks belong together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msprobe.errors import InvalidInputError

DEFAULT_ORDER = "tp-cp-ep-dp-pp"
_ORDER = re.compile(r"[a-z-]+")


@dataclass(frozen=True)
class Layout:
    """The sizes of one side. ``order``: the kinds of parallelism, the one that varies fastest first."""

    rank_size: int
    tp: int
    pp: int
    vpp: int = 1
    order: str = DEFAULT_ORDER

    @staticmethod
    def of(fields: Mapping[str, Any], where: str) -> Layout:
        """A checked layout. Raises InvalidInputError with all mistakes, which begin with ``where``."""
        mistakes: list[str] = []
        sizes: dict[str, int] = {}
        for name in ("rank_size", "tp", "pp", "vpp"):
            value = fields.get(name)
            if value is None and name == "vpp":
                value = 1
            if value is None:
                mistakes.append(f"{name} is required")
            elif type(value) is not int or value < 1:
                mistakes.append(f"{name} must be a whole number above 0, found {value!r}")
            else:
                sizes[name] = value
        order = fields.get("order") or DEFAULT_ORDER
        if not isinstance(order, str) or not _ORDER.fullmatch(order):
            mistakes.append(f"order must be of lower-case words with hyphens, as {DEFAULT_ORDER!r}, found {order!r}")
        elif not {"tp", "pp"} <= set(order.split("-")):
            mistakes.append(f"order must name tp and pp, found {order!r}")
        if not mistakes:
            mistakes = _misfits(**sizes)
        if mistakes:
            raise InvalidInputError(f"{where}: {'; '.join(mistakes)}.")
        return Layout(order=order, **sizes)

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
        found: dict[int, list[int]] = {}
        for rank in range(self.rank_size):
            place = rank // step % size
            found.setdefault(rank - place * step, []).append(rank)
        return [tuple(ranks) for ranks in found.values()]


def _misfits(rank_size: int, tp: int, pp: int, vpp: int) -> list[str]:
    found = []
    for name, size in (("tp", tp), ("pp", pp)):
        if size > rank_size:
            found.append(f"{name} {size} is larger than rank_size {rank_size}")
        elif rank_size % size:
            found.append(f"rank_size {rank_size} is no multiple of {name} {size}")
    if not found and tp * pp > rank_size:
        found.append(f"tp {tp} times pp {pp} is larger than rank_size {rank_size}")
    if not found and rank_size % (tp * pp):
        found.append(f"rank_size {rank_size} is no multiple of tp {tp} times pp {pp}")
    if vpp > 1 and pp == 1:
        found.append("vpp above 1 needs pp above 1")
    return found
