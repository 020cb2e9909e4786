"""The graph that MindSpore keeps for the backward pass of the dynamic graph, read as it is.

Every tensor that takes part has a node (``_grad_node``); nodes know where their gradients go (``next_functions``) and
call hooks before and after they run. Hooks on nodes that exist anyway see a call's gradients without a tensor being
replaced or a node being added. Seen in MindSpore 2.8 to 2.10; what is done without such nodes:
:mod:`msprobe.capture.mindspore.gradients.result_gradients`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from mindspore import Tensor

from msprobe.capture.adapter import PlacedTensor
from msprobe.capture.mindspore.gradients.asked_gradients import End, leaf_name

Node = Any

# A call that builds more nodes than this is not followed to its arguments.
WALK_LIMIT = 20_000


def is_readable() -> bool:
    """True if this MindSpore shows its graph."""
    return hasattr(Tensor, "_grad_node") and hasattr(Tensor, "_output_index")


def _identity(node: Node) -> int:
    """The same for the same node, as long as it lives."""
    try:
        known: int = node._unique_id()
        return known
    except AttributeError:
        # MindSpore 2.8: the text of a node has its number in the graph, that of a leaf its name.
        return hash(str(node))


def _node_of(tensor: Any) -> Node:
    """The node of a tensor; None if it takes no part, or is the result of an operator that failed."""
    try:
        return tensor._grad_node
    except Exception:
        return None


class Edge(NamedTuple):
    """Where the gradient of an argument goes: its node, the slot there, and the index path of the argument.

    ``node`` is None if the argument takes no part. Nodes have no identity in Python; ``key`` is theirs, as long as they
    live.
    """

    node: Node
    key: tuple[int, int]
    path: str


NO_KEY = (0, 0)


def edge_of(place: PlacedTensor) -> Edge:
    """The edge of one tensor."""
    path, tensor = place
    node = _node_of(tensor)
    if node is None:
        return Edge(None, NO_KEY, path)
    return Edge(node, (_identity(node), tensor._output_index), path)


class ResultNode(NamedTuple):
    """A node that results come from: for each of them the slot of the node and the place among the results."""

    node: Node
    slots: list[tuple[int, int]]


def results_of(tensors: Sequence[PlacedTensor]) -> dict[int, ResultNode]:
    """The nodes of results, by their key."""
    results: dict[int, ResultNode] = {}
    for index, (_, tensor) in enumerate(tensors):
        node = _node_of(tensor)
        if node is not None:
            results.setdefault(_identity(node), ResultNode(node, [])).slots.append((tensor._output_index, index))
    return results


class Boundary(NamedTuple):
    """A node of a call with edges to arguments: (position among its gradients, index of the argument); and where each
    of its gradients goes.
    """

    node: Node
    slots: list[tuple[int, int]]
    ends: list[End]


def find_boundary(results: dict[int, ResultNode], edges: Sequence[Edge], oldest: int) -> list[Boundary]:
    """The boundary between a call's nodes and its arguments.

    ``oldest``: nodes of a smaller sequence number are older than the call. An argument that is given twice is found
    under the first of its places.
    """
    arguments: dict[tuple[int, int], int] = {}
    for index, edge in enumerate(edges):
        if edge.node is not None:
            arguments.setdefault(edge.key, index)
    boundaries: list[Boundary] = []
    todo = [result.node for result in results.values() if _is_inner(result.node, oldest)]
    seen = {_identity(node) for node in todo}
    while todo:
        node = todo.pop()
        slots: list[tuple[int, int]] = []
        ends: list[End] = []
        for position, (target, slot) in enumerate(node.next_functions):
            if target is None:
                ends.append(None)
                continue
            ends.append(leaf_name(target) if target.is_leaf() else "")
            key = _identity(target)
            argument = arguments.get((key, slot))
            if argument is not None:
                slots.append((position, argument))
            elif key not in seen and _is_inner(target, oldest) and len(seen) < WALK_LIMIT:
                seen.add(key)
                todo.append(target)
        if slots:
            boundaries.append(Boundary(node, slots, ends))
    return boundaries


def _is_inner(node: Node, oldest: int) -> bool:
    return not node.is_leaf() and node._sequence_nr() >= oldest


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
        """Take all hooks away."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
