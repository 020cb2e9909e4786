from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from msprobe.compare.fuzzy import fuzzy_match
from msprobe.compare.matching import DIFFERENT, FAMILY, SAME, NameMapping, agreement, match
from msprobe.compare.rows import Rows, _Collector

LEAF = {
    "type": "torch.Tensor",
    "dtype": "torch.float32",
    "shape": [2],
    "Max": 1.0,
    "Min": 1.0,
    "Mean": 1.0,
    "Norm": 1.0,
}


def rows_of(records: dict[str, dict[str, object]]) -> Rows:
    collector = _Collector("dump.json")
    for name, record in records.items():
        collector.add(name, record)
    return collector.finish()


def calls(names: Sequence[str], **leaf: object) -> Rows:
    """A record with one input and one output for each name."""
    content = {**LEAF, **leaf}
    return rows_of({name: {"input_args": [content], "input_kwargs": {}, "output": [content]} for name in names})


def pairs(candidate: Rows, reference: Rows, partner: np.ndarray) -> dict[str, str]:  # type: ignore[type-arg]
    return {candidate.name[row]: reference.name[other] for row, other in enumerate(partner.tolist()) if other >= 0}


def test_rows_pair_by_name_in_any_order() -> None:
    ours, theirs = calls(["a", "b", "only"]), calls(["other", "b", "a"])
    found = match(ours, theirs)
    assert pairs(ours, theirs, found.partner) == {
        name: name for name in ("a.input.0", "a.output.0", "b.input.0", "b.output.0")
    }
    assert [theirs.name[row] for row in found.reference_only] == ["other.input.0", "other.output.0"]
    assert found.matched.tolist() == [True, True, True, True, False, False]


def test_equal_names_pair_in_their_order() -> None:
    twice = {"input_args": [LEAF], "input_kwargs": {"0": LEAF}, "output": []}
    found = match(rows_of({"f": twice}), rows_of({"f": twice}))
    assert found.partner.tolist() == [0, 1]


def test_mapped_names() -> None:
    ours, theirs = calls(["a", "b", "c"]), calls(["x", "b"])
    mapping = NameMapping(rename=lambda name: None if name.startswith("b") else name, pairs={"a.input.0": "x.output.0"})
    found = match(ours, theirs, mapping)
    assert pairs(ours, theirs, found.partner) == {"a.input.0": "x.output.0"}


def test_nothing_on_one_side() -> None:
    nothing, something = calls([]), calls(["a"])
    assert match(nothing, something).reference_only.tolist() == [0, 1]
    assert match(something, nothing).partner.tolist() == [-1, -1]
    assert agreement(something, nothing, match(something, nothing)).shape.all()


def test_agreement_of_types_and_shapes() -> None:
    cases = [
        ("torch.float32", "torch.float32", SAME),
        ("torch.bfloat16", "torch.float64", FAMILY),
        ("torch.int32", "torch.int64", DIFFERENT),
        ("torch.float32", "torch.int64", DIFFERENT),
        ("Float16", "BFloat16", FAMILY),
    ]
    for ours, theirs, wanted in cases:
        a, b = calls(["f"], dtype=ours), calls(["f"], dtype=theirs)
        assert agreement(a, b, match(a, b)).dtype.tolist() == [wanted, wanted], (ours, theirs)
    a, b = calls(["f"], dtype="Int32"), calls(["f"], dtype="torch.int64", shape=[3])
    found = agreement(a, b, match(a, b), cross_framework=True)
    assert found.dtype.tolist() == [SAME, SAME]
    assert not found.shape.any()
    assert not found.null.any()


def test_a_null_against_a_tensor_is_told() -> None:
    record = {"input_args": [], "input_kwargs": {}, "output": [None]}
    a, b = rows_of({"f": record}), rows_of({"f": {**record, "output": [LEAF]}})
    assert agreement(a, b, match(a, b)).null.tolist() == [True]
    assert not agreement(a, a, match(a, a)).null.any()


def fuzzy(ours: Sequence[str], theirs: Sequence[str]) -> dict[str, str]:
    a, b = calls(ours), calls(theirs)
    found = pairs(a, b, fuzzy_match(a, b).partner)
    return {name.removesuffix(".input.0"): other.removesuffix(".input.0") for name, other in found.items()}


def test_an_extra_call_shifts_nothing() -> None:
    ours = ["Torch.add.0.forward", "Torch.mul.0.forward", "Torch.add.1.forward", "Torch.exp.0.forward"]
    theirs = ["Torch.mul.0.forward", "Torch.add.0.forward", "Torch.exp.0.forward"]
    found = fuzzy(ours, theirs)
    assert "Torch.add.0.forward" not in found
    assert found["Torch.add.1.forward"] == "Torch.add.0.forward"
    assert found["Torch.exp.0.forward"] == "Torch.exp.0.forward"


def test_backward_calls_go_the_way_of_their_forward_call() -> None:
    ours = [f"Torch.add.{n}.forward" for n in (1, 2)] + [f"Torch.add.{n}.backward" for n in (2, 1)]
    theirs = [f"Torch.add.{n}.forward" for n in (5, 6)] + [f"Torch.add.{n}.backward" for n in (6, 5)]
    assert fuzzy(ours, theirs)["Torch.add.2.backward"] == "Torch.add.6.backward"


def test_calls_pair_within_their_module() -> None:
    ours = calls(["Torch.add.0.forward", "Torch.add.1.forward"])
    theirs = calls(["Torch.add.0.forward"])
    found = fuzzy_match(
        ours,
        theirs,
        {"Torch.add.0.forward": "Module.a.A.forward.0", "Torch.add.1.forward": "Module.b.B.forward.0"},
        {"Torch.add.0.forward": "Module.b.B.forward.3"},
    )
    assert found.partner.tolist() == [-1, -1, 0, 1]
    assert found.fuzzy.tolist() == [False, False, True, True]


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(0, 5))
def test_shifted_numbers_of_the_same_calls_all_pair(kinds: list[str], shift: int) -> None:
    def numbered(start: int) -> list[str]:
        counts: dict[str, int] = {}
        names = []
        for kind in kinds:
            counts[kind] = counts.get(kind, start - 1) + 1
            names.append(f"Torch.{kind}.{counts[kind]}.forward")
        return names

    a, b = calls(numbered(0)), calls(numbered(shift))
    assert fuzzy_match(a, b).partner.tolist() == list(range(len(a)))
