"""Since when ranks hold terms, or copies that are not the same."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from msprobe.compare.entry_names import read_name
from msprobe.diagnose.layout.beginnings import Beginnings
from msprobe.diagnose.layout.guess import Fit, TensorSpread
from msprobe.diagnose.layout.measured import MeasuredTensor, RecordPair
from msprobe.diagnose.layout.placements import REPLICATE, Placement
from msprobe.diagnose.layout.sides import ModulePlace
from msprobe.diagnose.steps.timeline import Event

BLOCK: Any = SimpleNamespace(described=lambda: {"dtype": "torch.bfloat16"})


def tensor(torn: float = 0.0, terms: bool = False) -> MeasuredTensor:
    way = TensorSpread((2,), (Placement("sum") if terms else REPLICATE,))
    copies = ((1, 0, torn),) if torn else ()
    return MeasuredTensor(
        "output.0", "activation", "", Fit(BLOCK, BLOCK, (way, TensorSpread()), 0.0, "statistics", copies)
    )


def module(path: str, given: Sequence[MeasuredTensor], made: Sequence[MeasuredTensor]) -> RecordPair:
    name = f"Module.{path}.Linear.forward.0"
    event = Event(name, read_name(name), {}, "forward")
    return RecordPair(ModulePlace("forward", path), 0, {0: event}, event, list(given), [], list(made))


def test_copies_are_led_back_to_where_they_began_to_differ() -> None:
    began = Beginnings()
    first = module("blocks.0", [tensor()], [tensor(torn=0.004)])
    later = module("blocks.1.norm", [tensor(torn=0.004)], [tensor(torn=0.05)])
    began.follow(first)
    assert began.beginning_of_copies(later, later.outputs[0]) == (first, first.outputs[0])


def test_copies_that_went_in_as_one_began_to_differ_here() -> None:
    began = Beginnings()
    began.follow(module("blocks.0", [tensor()], [tensor(torn=0.004)]))
    later = module("blocks.1.up", [tensor()], [tensor(torn=0.05)])
    assert began.beginning_of_copies(later, later.outputs[0])[0] is later


def test_a_trace_of_a_difference_does_not_explain_a_large_one() -> None:
    began = Beginnings()
    began.follow(module("blocks.0", [tensor()], [tensor(torn=1e-6)]))
    later = module("blocks.1.up", [tensor(torn=1e-6)], [tensor(torn=0.5)])
    assert began.beginning_of_copies(later, later.outputs[0])[0] is later


def test_terms_are_known_until_they_are_added_up() -> None:
    began = Beginnings()
    inner = module("blocks.0.down", [tensor()], [tensor(terms=True)])
    began.follow(inner)
    began.follow(module("blocks.0", [tensor()], [tensor(terms=True)]))
    assert began.terms == (inner, inner.outputs[0]), "what went into the module around it went in before"
    began.follow(module("blocks.1.norm", [tensor()], [tensor()]))
    assert began.terms is None
