"""The calls and modules of a pair of steps of which one side ran on MindSpore and the other on PyTorch."""

from __future__ import annotations

from msprobe.diagnose.measured.modules import module_nodes
from msprobe.diagnose.measured.node import SINGLE, Node
from msprobe.diagnose.measured.nodes import nodes
from msprobe.diagnose.pairing.match import Pairing
from msprobe.diagnose.steps.timeline import Timeline
from msprobe.diagnose.tolerance.units import common_unit


def nodes_across(pairing: Pairing, is_alone: bool) -> list[Node]:
    """Where one side ran on MindSpore and the other on PyTorch: calls and layers that both made, and modules in which
    neither side shows a call. Of half types alone: what the kernels of two frameworks approximate is within a unit of
    these, and hundreds of units of single precision.
    """
    unit = max(map(common_unit, (pairing.candidate, pairing.reference)))
    places = {event: place for place, event in enumerate(pairing.candidate)}
    across = [*nodes(pairing, is_alone, crossing=True)]
    judged = {node.event for node in across if node.results}
    if any(event.is_call for event in places):
        shown = _modules_around_calls(pairing.candidate), _modules_around_calls(pairing.reference)
        for node in module_nodes(pairing, unit, crossing=True):
            paths = node.event.parts.path, pairing.partner[node.event].parts.path
            shows_calls = any(path in modules for path, modules in zip(paths, shown, strict=True))
            if not shows_calls and (node.is_taken or node.event not in judged):
                across.append(node)
    across = [node for node in across if node.unit > SINGLE and node.exchange is None]
    return sorted(across, key=lambda node: (places[node.event], not node.is_taken))


def _modules_around_calls(timeline: Timeline) -> set[str]:
    """The paths of modules in which calls were recorded that stand for themselves."""
    paths: set[str] = set()
    for event in timeline:
        around = event.parent if not event.is_module else None
        while around is not None and around.parts.path not in paths:
            paths.add(around.parts.path)
            around = around.parent
    return paths
