"""Objects are told apart by what they are, and not kept alive."""

from __future__ import annotations

from typing import Any

from msprobe.capture.identity import IdentityMap, IdentitySet


class Odd:
    """Is equal to nothing, and cannot be hashed."""

    def __eq__(self, other: object) -> Any:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]


def test_a_set_knows_objects_by_identity_and_does_not_keep_them() -> None:
    known = IdentitySet()
    one, two = Odd(), Odd()
    known.add(one)
    known.add(one)
    assert one in known
    assert two not in known
    assert [id(member) for member in known] == [id(one)]
    del one
    assert not list(known)
    known.add(two)
    known.discard(two)
    known.discard(two)
    assert two not in known


def test_a_map_has_the_values_of_those_that_live() -> None:
    counts: IdentityMap[int] = IdentityMap()
    one, two = Odd(), Odd()
    counts[one] = 1
    assert (counts.get(one), counts.get(two), counts.get(two, 0)) == (1, None, 0)
    assert (counts.setdefault(one, 5), counts.setdefault(two, 2)) == (1, 2)
    counts[one] = 3
    assert counts.values() == [3, 2]
    del two
    assert [id(key) for key in counts] == [id(one)]
    assert (counts.pop(one), counts.pop(one, 0), len(counts)) == (3, 0, 0)
