"""To how many bits products in single precision round what they multiply, where that shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msprobe.diagnose.measured.node import SINGLE, Node
from msprobe.diagnose.tolerance.declared_units import Rounding, possible_rounding

#: Where no header says anything.
UNDECLARED_ROUNDING: Mapping[str, Rounding] = possible_rounding({}, {})
#: Of a kind with fewer calls than this that can say so, all that multiply decide.
_FEW_CALLS = 5


def product_units(nodes: Iterable[Node], possible: Mapping[str, Rounding] = UNDECLARED_ROUNDING) -> dict[str, float]:
    """The unit to which the inputs of products in single precision are rounded, where that is possible and shows, by
    the kind of their kernels: matrices and convolutions have settings of their own. It shows if a quarter of the calls
    that can say so are as far apart as it makes them, and their arguments are not. Calls that are further apart say
    nothing of it. ``possible``: what headers allow (``tolerance.declared_units.possible_rounding``).
    """
    clean: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    for node in nodes:
        rounding = possible.get(node.product)
        if rounding is None or not rounding.unit or node.excused or not 0.0 < node.unit <= SINGLE:
            continue
        unit = rounding.unit
        sizes = [result for result in node.results if result.distance <= 2 * unit]
        shows = any(size.distance >= max(unit / 16, 2 * size.given) for size in sizes)
        apart[node.product] += shows
        clean[node.product] += shows or any(size.given < unit / 16 for size in sizes)
    every = apart.total(), clean.total()
    units: dict[str, float] = {}
    for kind, count in clean.items():
        few = count < _FEW_CALLS and not possible[kind].is_declared
        ones, whole_count = every if few else (apart[kind], count)
        if ones and ones * 4 >= whole_count:
            units[kind] = possible[kind].unit
    return units
