"""Gradients of one call, read off the autograd graph without adding to it.

Hooks are put on nodes that exist anyway. Those on the node of a result see the gradients that arrive there;
those on the *boundary* nodes, whose edges lead out of the call to its arguments, see exactly this call's
share of the gradients that leave it. No tensor is replaced, no node is added: in-place writes, views and the
order in which gradients are summed stay as they are.

The boundary is found by walking from the results' nodes. The walk ends at the edges of the arguments, which
were noted before the call, at parameters, and at nodes that are older than the call (the sequence number
tells).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

Node = Any
AccumulateGrad: type = type(torch.ones((), requires_grad=True).view(()).grad_fn.next_functions[0][0])  # type: ignore[union-attr]
sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr  # type: ignore[attr-defined]

# A call that builds more nodes than this is not followed to its arguments.
WALK_LIMIT = 20_000


class ArgumentEdge(NamedTuple):
    """A tensor argument as the graph knows it before the call: its node (None for a leaf), slot and index
    path.
    """

    node: Node
    slot: int
    path: str
    tensor: Any


class Boundary(NamedTuple):
    """A node of the call with edges to arguments: (position among its gradients, index of the argument)."""

    node: Node
    slots: list[tuple[int, int]]


def edge_of(tensor: Any, path: str) -> ArgumentEdge:
    """The gradient edge of a tensor that requires grad. A leaf is kept itself, without creating its node."""
    node = tensor.grad_fn
    if node is None:
        return ArgumentEdge(None, 0, path, tensor)
    return ArgumentEdge(node, tensor.output_nr, path, None)


def find_boundary(nodes: Iterable[Node], edges: Sequence[ArgumentEdge], oldest: int) -> list[Boundary]:
    """The boundary between a call's nodes and its arguments.

    ``nodes``: the nodes of the results. ``edges``: the arguments'. ``oldest``: the autograd sequence number
    before the call; nodes below it belong to what came before.
    """
    by_node: dict[tuple[Node, int], list[int]] = {}
    leaves: list[tuple[Any, int]] = []
    for index, edge in enumerate(edges):
        if edge.node is None:
            leaves.append((edge.tensor, index))
        else:
            by_node.setdefault((edge.node, edge.slot), []).append(index)
    found: list[Boundary] = []
    seen: set[Node] = set()
    # A result that is an argument handed through brings a node that is older than the call.
    todo = [node for node in nodes if node._sequence_nr() >= oldest]
    while todo:
        node = todo.pop()
        if node in seen or len(seen) > WALK_LIMIT:
            continue
        seen.add(node)
        slots: list[tuple[int, int]] = []
        for position, (target, slot) in enumerate(node.next_functions):
            if target is None:
                continue
            arguments = by_node.get((target, slot))
            if arguments is not None:
                # The same tensor passed twice: its edges coincide, the first argument stands for all.
                slots.append((position, arguments[0]))
            elif type(target) is AccumulateGrad:
                variable = target.variable
                for leaf, index in leaves:
                    if leaf is variable:
                        slots.append((position, index))
                        break
            elif target._sequence_nr() >= oldest:
                todo.append(target)
        if slots:
            found.append(Boundary(node, slots))
    return found


def has_inner_nodes(node: Node, edges: Sequence[ArgumentEdge], oldest: int) -> bool:
    """True if ``node`` does not lead straight to the arguments: other nodes of the same call lie between."""
    for target, _ in node.next_functions:
        if target is None or type(target) is AccumulateGrad:
            continue
        if any(target is edge.node for edge in edges):
            continue
        if target._sequence_nr() >= oldest:
            return True
    return False


class Gathering:
    """The gradients of one pass through a call, while they arrive.

    ``expected`` boundary positions are awaited; an argument that is used several times inside the call gets
    the sum of its shares, added outside the graph.
    """

    __slots__ = ("arrived", "expected", "finished", "grad_outputs", "open", "order", "shares")

    def __init__(self, arguments: int, expected: int) -> None:
        self.expected = expected
        self.arrived = 0
        self.shares: list[Any] = [None] * arguments
        self.grad_outputs: list[Any] = []
        self.order = 0
        self.open = False
        self.finished = False

    def add(self, index: int, gradient: Any) -> None:
        """One share of the gradient of argument ``index`` (None: no gradient came this way)."""
        if gradient is None:
            return
        before = self.shares[index]
        if before is None:
            self.shares[index] = gradient
        else:
            with torch.no_grad():
                self.shares[index] = before + gradient


class NodeHooks:
    """Hooks of ours on nodes of the graph; all can be taken away at once."""

    def __init__(self) -> None:
        self._handles: list[Any] = []

    def before(self, node: Node, work: Callable[..., None], *bound: Any) -> None:
        """Call ``work(*bound, gradients)`` when gradients arrive at ``node``."""
        self._handles.append(node.register_prehook(partial(work, *bound)))

    def after(self, node: Node, work: Callable[..., None], *bound: Any) -> None:
        """Call ``work(*bound, gradients passed on, gradients received)`` when ``node`` has run."""
        self._handles.append(node.register_hook(partial(work, *bound)))

    def remove(self) -> None:
        """Take all hooks away; nodes that are gone took theirs along."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
