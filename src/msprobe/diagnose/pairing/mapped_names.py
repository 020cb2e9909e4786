"""Names from mapping files: what a run in MindSpore calls modules and functions, as the run in PyTorch calls them.

Most names answer to each other by themselves (:mod:`msprobe.diagnose.pairing.translation`). A cell mapping names
modules that stand elsewhere in the model, an api mapping of functions of the user's own, and the order of their
arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msprobe.compare.entry_names import plain_path, read_name
from msprobe.compare.mapping import Mappings, api_pairs, renamed_module
from msprobe.compare.mapping_files import ApiPair, CellMapping
from msprobe.diagnose.steps.timeline import Event, Timeline


def use_mapped_names(timeline: Timeline, mappings: Mappings) -> None:
    """Give the events of a timeline of MindSpore the names that mappings have for them."""
    pairs = api_pairs(mappings.api) if mappings.api is not None else {}
    for event in timeline:
        if event.parts.kind == "api":
            pair = pairs.get(event.parts.stem) or pairs.get(".".join(event.parts.stem.split(".")[:2]))
            if pair is not None:
                _call_as(event, pair)
        elif event.parts.path and mappings.cell is not None and mappings.cell.paths:
            _move(event, mappings.cell)


def _move(event: Event, mapping: CellMapping) -> None:
    new = read_name(renamed_module(event.name, mapping))
    if new.path != event.parts.path:
        event.call(new.path)
        event.key = f"{event.parts.kind}:{plain_path(new.path)}"
    event.parts = event.parts._replace(owner=new.owner)


def _call_as(event: Event, pair: ApiPair) -> None:
    event.stem = pair.reference
    record = dict(event.record)
    backward = event.direction == "backward"
    # What comes out of a backward call are gradients of the arguments.
    for key, places in (
        ("output" if backward else "input_args", pair.inputs),
        ("input" if backward else "output", pair.outputs),
    ):
        if places is not None and isinstance(record.get(key), list):
            record[key] = _placed(record[key], places)
    event.record = record


def _placed(values: list[Any], places: Mapping[str, str]) -> list[Any]:
    """The values at the places that they have in the reference; those without a place are left out."""
    by_place = {int(new): values[int(old)] for old, new in places.items() if int(old) < len(values)}
    return [by_place.get(place) for place in range(max(by_place, default=-1) + 1)]
