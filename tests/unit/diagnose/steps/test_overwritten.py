"""What a collective only writes over is no data; what it sends is."""

from __future__ import annotations

from typing import Any

from support.row_by_row import for_each

from msprobe.diagnose.steps.overwritten import without_overwritten

TENSOR = {
    "type": "torch.Tensor",
    "dtype": "torch.float32",
    "shape": [4],
    "Max": 9.0,
    "Min": 1.0,
    "Mean": 3.0,
    "Norm": 9.5,
}


def unset(stem: str, *slots: str) -> list[bool]:
    given: list[tuple[str, Any]] = [(slot, {**TENSOR, "digest": "xxh3:1", "nan": 2}) for slot in slots]
    found = without_overwritten(stem, given)
    assert [slot for slot, _ in found] == list(slots)
    for _, leaf in found:
        assert (leaf["dtype"], leaf["shape"]) == ("torch.float32", [4])
        assert ("digest" in leaf) == ("nan" in leaf) == (leaf["Norm"] is not None) == (not leaf.get("unset", False))
    return [leaf.get("unset", False) for _, leaf in found]


@for_each(
    ("stem", "slots", "expected"),
    [
        ("Distributed.irecv", ["input.0"], [True]),
        ("Distributed.recv", ["input.tensor"], [True]),
        ("Distributed.isend", ["input.0"], [False]),
        ("Distributed.all_reduce", ["input.0"], [False]),
        ("Distributed.broadcast", ["input.0"], [False]),
        ("Distributed.all_gather", ["input.0.0", "input.0.1", "input.1"], [True, True, False]),
        ("Distributed.reduce_scatter", ["input.output", "input.input_list.0"], [True, False]),
        ("Distributed.gather", ["input.0", "input.1.0"], [False, True]),
        ("Ops.c10d_recv_", ["input.0.0", "input.1"], [True, False]),
        ("Torch.add", ["input.0"], [False]),
    ],
)
def test_buffers_of_collectives(stem: str, slots: list[str], expected: list[bool]) -> None:
    assert unset(stem, *slots) == expected


def test_what_is_no_tensor_stays() -> None:
    given = [("input.0", None), ("input.tensor", {"type": "int", "value": 3})]
    assert without_overwritten("Distributed.recv", given) == given


def test_a_batch_of_messages_writes_over_what_it_receives() -> None:
    given = [("input.0.0.tensor", TENSOR), ("input.0.0.op", "isend"), ("input.0.1.tensor", TENSOR)]
    given += [("input.0.1.op", "irecv")]
    found = dict(without_overwritten("Distributed.batch_isend_irecv", given))
    assert [found[f"input.0.{i}.tensor"].get("unset", False) for i in range(2)] == [False, True]


def test_what_functions_write_their_result_to_is_no_data() -> None:
    assert unset("Torch.add", "input.0", "input.1", "input.out") == [False, False, True]
    assert unset("Torch.topk", "input.0", "input.out.0", "input.out.1") == [False, True, True]
    assert unset("Torch.add", "input.0", "input.output") == [False, False]
