"""How many calls have rounded a tensor on its way, on ranks of two layouts."""

from __future__ import annotations

from pathlib import Path

from unit.diagnose.training import Plan, train

from msprobe.diagnose.layout.rounded import Rounded, calls_inside, unit_inside
from msprobe.diagnose.layout.sides import LayoutSide, ModulePlace
from msprobe.store.reader import open_dump


def side(folder: Path, plan: Plan) -> LayoutSide:
    return LayoutSide([open_dump(train(folder, plan)).part()])


def test_calls_are_counted_in_order_of_execution(tmp_path: Path) -> None:
    one, other = (side(tmp_path / name, Plan(dtype="bfloat16")) for name in ("a", "b"))
    rounded = Rounded(one, other)
    counts = []
    for path in ("blocks.0", "blocks.1"):
        (mine,), (theirs,) = (each.records[ModulePlace("forward", path)].values() for each in (one, other))
        events = {one.ranks[0]: mine[0]}
        before, until = rounded.before(events, theirs[0]), rounded.until(events, theirs[0])
        assert until - before <= sum(1 for _ in calls_inside(mine[0]))
        counts += [before, until]
    assert counts == sorted(counts)
    assert counts[1] < counts[3] <= rounded.forward


def test_the_side_that_rounds_more_often_counts(tmp_path: Path) -> None:
    one = side(tmp_path / "a", Plan(dtype="bfloat16"))
    other = side(tmp_path / "b", Plan(dtype="bfloat16", left_out=frozenset(("blocks.0.tanh",))))
    assert Rounded(one, other).forward == Rounded(other, one).forward == Rounded(one, one).forward


def test_the_unit_is_that_of_the_type_that_calls_compute_in(tmp_path: Path) -> None:
    one = side(tmp_path / "a", Plan(dtype="bfloat16"))
    assert Rounded(one, one).unit == 2.0**-7
    (events,) = one.records[ModulePlace("forward", "blocks.0")].values()
    assert unit_inside(*events) == 2.0**-7
