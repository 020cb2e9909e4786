"""The walk over a graph, from the results of a call to its arguments."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.row_by_row import for_each
from torch import nn

from msprobe.capture.torch.gradients import graph_nodes as gradients
from msprobe.capture.torch.gradients.graph_nodes import edge_of, find_boundary, sequence_number


def _written(x: torch.Tensor) -> torch.Tensor:
    whole = x * 1
    whole[0].mul_(2)
    return whole


CALLS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "linear": lambda x, w: nn.functional.linear(x, w),
    "several uses": lambda x, w: x * w + (x @ w).relu() * x,
    "several results": lambda x, w: (x * 2, x.split(2)[1], w.t() @ x),
    "handed through": lambda x, w: (x, x + w),
    "written to": lambda x, w: _written(x) + w,
    "written to itself": lambda x, w: x.view(-1)[:2].mul_(3).sum() + w.sum(),
    "nothing of them": lambda x, w: torch.ones(2, requires_grad=True) * 2,
}


def boundary(call: str, leaf: bool) -> tuple[Any, list[Any], int]:
    x = torch.ones(4, 4, requires_grad=True)
    x = x if leaf else x * 1
    w = torch.ones(4, 4, requires_grad=True)
    if leaf and call == "written to itself":
        pytest.skip("a leaf cannot be written to")
    edges = [edge_of(x, "input.0"), edge_of(w, "input.1"), edge_of(x, "input.2")]
    oldest = sequence_number()
    results = CALLS[call](x, w)
    results = results if isinstance(results, tuple) else (results,)
    return [result.grad_fn for result in results if result.grad_fn is not None], edges, oldest


@for_each("leaf", [False, True])
@for_each("call", CALLS)
def test_the_boundary_is_found_where_there_is_one(call: str, leaf: bool) -> None:
    nodes, edges, oldest = boundary(call, leaf)
    found = find_boundary(nodes, edges, oldest)
    for place in found:
        for position, index in place.slots:
            target, slot = place.node.next_functions[position]
            edge = edges[index]
            assert (target is edge.node and slot == edge.slot) or target.variable is edge.tensor
    assert bool(found) == (call != "nothing of them")


def test_it_stops_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(3, requires_grad=True) * 1
    edges, oldest = [edge_of(x, "input.0")], sequence_number()
    for _ in range(20):
        x = x + 1
    monkeypatch.setattr(gradients, "WALK_LIMIT", 10)
    assert find_boundary([x.grad_fn], edges, oldest) == []


def test_nothing_is_kept() -> None:
    nodes, edges, oldest = boundary("several uses", False)
    find_boundary(nodes, edges, oldest)
    before = [sys.getrefcount(node) for node in nodes]
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(2000):
            find_boundary(nodes, edges, oldest)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [sys.getrefcount(node) for node in nodes] == before
    assert kept < 20_000
