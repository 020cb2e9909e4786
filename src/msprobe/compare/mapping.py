"""What the mappings of a comparison come to: for each row of the candidate, the row of the reference it wants.

Of several mappings each does its part: api mappings rename functions, cell mappings modules, and a pair of a data
mapping is the last word. A layer mapping stands by itself; it is written out as a data mapping.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from msprobe import log
from msprobe.compare.entry_names import EntryName, read_name
from msprobe.compare.layers import Names, pair_entries
from msprobe.compare.mapping_files import (
    NO_PARTNER,
    ApiMapping,
    ApiPair,
    CellMapping,
    DataMapping,
    LayerMapping,
    load_api_mapping,
    load_cell_mapping,
    load_data_mapping,
    load_layer_mapping,
)
from msprobe.compare.matching import NameMapping
from msprobe.compare.name_table import PARAMETER_NAMES, layer_name, torch_name
from msprobe.compare.renaming import with_stem
from msprobe.compare.rows import Rows
from msprobe.messages import said
from msprobe.paths import StrPath, write_atomically

_PLAIN = re.compile(r"[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class Mappings:
    """All mappings of one comparison; None for those that were not asked for."""

    data: DataMapping | None = None
    api: ApiMapping | None = None
    cell: CellMapping | None = None
    layer: LayerMapping | None = None

    def __bool__(self) -> bool:
        return any(part is not None for part in (self.data, self.api, self.cell, self.layer))


def load_mappings(
    *,
    data: StrPath | Mapping[Any, Any] | None = None,
    api: StrPath | Mapping[Any, Any] | list[Any] | bool | None = None,
    cell: StrPath | Mapping[Any, Any] | bool | None = None,
    layer: StrPath | Mapping[Any, Any] | bool | None = None,
) -> Mappings:
    """Read what was given: paths of YAML files or their content; True stands for "without a file".

    None, False and the empty text mean that the mapping is not asked for. Raises PathError, or InvalidInputError
    with the mistakes of the first file that has some.
    """
    return Mappings(
        data=load_data_mapping(data) if _given(data) else None,  # type: ignore[arg-type]
        api=load_api_mapping(api) if _given(api) else None,  # type: ignore[arg-type]
        cell=load_cell_mapping(cell) if _given(cell) else None,  # type: ignore[arg-type]
        layer=load_layer_mapping(layer) if _given(layer) else None,  # type: ignore[arg-type]
    )


def _given(value: object) -> bool:
    return not (value is None or value is False or value == "")


@dataclass(frozen=True)
class AppliedMappings:
    """What mappings come to for two parts: ``names`` for matching, and the data mapping that layers came to."""

    names: NameMapping
    generated: DataMapping | None = None


def apply_mappings(
    mappings: Mappings,
    candidate: Rows,
    reference: Rows,
    candidate_part: Names | None = None,
    reference_part: Names | None = None,
) -> AppliedMappings:
    """Find for each row of the candidate the name it has in the reference.

    The parts are needed for a layer mapping alone; it stands in for all others.
    """
    if mappings.layer is not None:
        if candidate_part is None or reference_part is None:
            raise ValueError(said("layer-mapping-needs-both"))
        generated = data_mapping_from_layers(candidate_part, reference_part, candidate, reference, mappings.layer)
        return AppliedMappings(NameMapping(rename=dict(generated.pairs).get), generated)
    wanted = dict(zip(candidate.name, wanted_names(mappings, candidate, reference), strict=True))
    return AppliedMappings(NameMapping(rename=wanted.get))


def wanted_names(mappings: Mappings, candidate: Rows, reference: Rows) -> list[str | None]:
    """The name of the reference's row that each row of the candidate wants; None where there is to be none."""
    there = set(reference.name)
    names: list[str | None] = list(candidate.name)
    if mappings.api is not None:
        _rename_apis(names, candidate, reference, mappings.api)
    if mappings.cell is not None:
        _rename_cells(names, candidate, there, mappings.cell)
    if mappings.api is not None or mappings.cell is not None:
        _keep_of_one_kind(names, candidate, reference)
    if mappings.data is not None:
        pairs = pairs_by_hand(mappings.data, candidate, reference)
        names = [pairs.get(name, wanted) for name, wanted in zip(candidate.name, names, strict=True)]
    return names


def data_mapping_from_layers(
    candidate_part: Names, reference_part: Names, candidate: Rows, reference: Rows, mapping: LayerMapping
) -> DataMapping:
    """The data mapping that a layer mapping comes to, with every row of the candidate in its order."""
    partners = pair_entries(candidate_part, reference_part, mapping)
    mine, theirs = _slots(candidate), _slots(reference)
    pairs: dict[str, str | None] = {}
    for name, entry, slot in zip(candidate.name, _entries(candidate), candidate.slot, strict=True):
        partner = partners.get(entry)
        pairs[name] = None if partner is None else _slot_of(entry, slot, partner, mine, theirs)
    return DataMapping(pairs)


def _keep_of_one_kind(names: list[str | None], candidate: Rows, reference: Rows) -> None:
    """Leave rows without partner whose partner is a tensor where they are a number or a word, or the other way: the
    frameworks take their arguments in other orders. A null may stand for either. Data and layer mappings go by name
    alone, as those of mindstudio-probe.
    """
    mine, theirs = _kinds(candidate), dict(zip(reference.name, _kinds(reference), strict=True))
    for row, (kind, name) in enumerate(zip(mine, names, strict=True)):
        if name is not None and {kind, theirs.get(name, kind)} == {"tensor", "plain"}:
            names[row] = None


def _kinds(rows: Rows) -> list[str]:
    words = np.array(["null" if word == "None" else "plain" for word in rows.dtypes], dtype=object)
    return np.where(rows.is_tensor, "tensor", words[rows.dtype]).tolist() if len(rows) else []


def write_data_mapping(path: StrPath, mapping: DataMapping) -> None:
    """Write a data mapping as YAML, one pair in a line, ``N/A`` where there is no partner."""
    lines = [
        f"{_yaml(name)}: {_yaml(NO_PARTNER if other is None else other)}\n" for name, other in mapping.pairs.items()
    ]
    write_atomically(path, "".join(lines).encode("utf-8"), fsync=False)


def _yaml(name: str) -> str:
    if _PLAIN.fullmatch(name) or name == NO_PARTNER:
        return name
    escaped = "".join(
        f"\\{letter}" if letter in '"\\' else letter if letter.isprintable() else f"\\U{ord(letter):08x}"
        for letter in name
    )
    return f'"{escaped}"'


def _entries(rows: Rows) -> Iterator[str]:
    """The name of the record of each row."""
    return map(rows.entries.__getitem__, rows.entry.tolist())


_Slots = Mapping[str, Mapping[str, str]]


def _slots(rows: Rows) -> dict[str, dict[str, str]]:
    """For each record: slot -> name of the row."""
    slots: dict[str, dict[str, str]] = defaultdict(dict)
    for name, entry, slot in zip(rows.name, _entries(rows), rows.slot, strict=True):
        slots[entry].setdefault(slot, name)
    return slots


def _slot_of(entry: str, slot: str, partner: str, mine: _Slots, theirs: _Slots) -> str | None:
    """The row of the partner for a slot of the record; None if it has none, or none that is the same argument."""
    there = theirs.get(partner, {})
    if entry.startswith("Primitive.") and not _same_arguments(entry, slot, partner, mine, theirs):
        return None
    return there.get(slot) or there.get(_other_parameter(entry, slot))


def _same_arguments(entry: str, slot: str, partner: str, mine: _Slots, theirs: _Slots) -> bool:
    """Primitives take arguments in an order of their own: pair them with those of a function only if both have
    equally many. The results always answer to each other.
    """
    arguments = "output" if read_name(entry).direction == "backward" else "input"
    if not slot.startswith(arguments) or partner.startswith("Primitive."):
        return True
    return _positions(mine[entry], arguments) == _positions(theirs[partner], arguments)


def _positions(slots: Mapping[str, str], word: str) -> set[str]:
    parts = (slot.split(".") for slot in slots)
    return {part[1] for part in parts if len(part) > 1 and part[0] == word and part[1].isdigit()}


def _other_parameter(entry: str, slot: str) -> str:
    """The slot with PyTorch's name for a parameter of MindSpore's; the slot itself for all else."""
    if slot.startswith("parameters.") or read_name(entry).kind == "parameters":
        before, dot, last = slot.rpartition(".")
        return f"{before}{dot}{PARAMETER_NAMES.get(last, last)}"
    return slot


def _rename_apis(names: list[str | None], candidate: Rows, reference: Rows, mapping: ApiMapping) -> None:
    """Give the rows of functions the names that the reference has for them."""
    pairs = _usable_pairs(mapping, candidate, reference)
    known: dict[str, tuple[str, EntryName, ApiPair | None] | None] = {}
    for row, (entry, slot) in enumerate(zip(_entries(candidate), candidate.slot, strict=True)):
        if entry not in known:
            known[entry] = _renamed_entry(entry, pairs)
        renamed = known[entry]
        if renamed is None:
            continue
        new, parsed, pair = renamed
        other = slot if pair is None else _renamed_slot(slot, parsed, pair)
        names[row] = None if other is None else f"{new}.{other}" if other else new


def _renamed_entry(entry: str, pairs: Mapping[str, ApiPair]) -> tuple[str, EntryName, ApiPair | None] | None:
    name = read_name(entry)
    pair = pairs.get(name.stem) or pairs.get(_short(name.stem))
    if pair is not None:
        return with_stem(name, pair.reference), name, pair
    other = torch_name(name.stem)
    return None if other == name.stem else (with_stem(name, other), name, None)


def _short(stem: str) -> str:
    """Kind and name of an API, without the class that a primitive has behind them."""
    return ".".join(stem.split(".")[:2])


def _usable_pairs(mapping: ApiMapping, candidate: Rows, reference: Rows) -> dict[str, ApiPair]:
    """The pairs whose names occur on both sides, by the candidate's name; the first of several counts."""
    mine, theirs = _apis(candidate), _apis(reference)
    pairs: dict[str, ApiPair] = {}
    for pair in mapping.pairs:
        if pair.candidate not in mine:
            log.warning(said("api-mapping-not-in-candidate", pair.candidate))
        elif pair.reference not in theirs:
            log.warning(said("api-mapping-not-in-reference", pair.reference))
        elif pairs.setdefault(pair.candidate, pair) is not pair:
            log.warning(said("api-mapping-twice", pair.candidate))
    return pairs


def api_pairs(mapping: ApiMapping) -> dict[str, ApiPair]:
    """The pairs of an api mapping by the candidate's name; the first of several counts."""
    by_candidate: dict[str, ApiPair] = {}
    for pair in mapping.pairs:
        by_candidate.setdefault(pair.candidate, pair)
    return by_candidate


def _apis(rows: Rows) -> set[str]:
    stems = {read_name(entry).stem for entry in rows.entries}
    return stems | set(map(_short, stems))


def _renamed_slot(slot: str, name: EntryName, pair: ApiPair) -> str | None:
    """The slot on the other side; None if the pair lists others and not this one.

    What comes out of a backward call are gradients of the arguments, the inputs are those of the results.
    """
    if name.kind == "parameters":
        return _through(slot, "", pair.gradients)
    word, _, rest = slot.partition(".")
    backward = name.direction == "backward"
    maps = {
        "input": pair.outputs if backward else pair.inputs,
        "output": pair.inputs if backward else pair.outputs,
        "parameters": pair.parameters,
    }
    if word not in maps or not rest:
        return slot
    if word != "parameters" and not rest.split(".", 1)[0].isdigit():
        return slot  # a keyword argument; the lists are of positions
    return _through(rest, f"{word}.", maps[word])


def _through(rest: str, before: str, names: Mapping[str, str] | None) -> str | None:
    if names is None:
        return before + rest
    if rest in names:  # a parameter's name may have dots
        return before + names[rest]
    first, dot, last = rest.partition(".")
    return f"{before}{names[first]}{dot}{last}" if first in names else None


def _rename_cells(names: list[str | None], candidate: Rows, there: set[str], mapping: CellMapping) -> None:
    """Give the rows of modules the names that the reference has for them."""
    known: dict[str, str] = {}
    for row, (entry, slot) in enumerate(zip(_entries(candidate), candidate.slot, strict=True)):
        if not entry.startswith(("Cell.", "Module.")):
            continue
        new = known.get(entry)
        if new is None:
            new = known[entry] = renamed_module(entry, mapping)
        name = f"{new}.{slot}" if slot else new
        if name not in there:
            known_to_both = _with_class_of_torch(new)
            others = [
                f"{module}.{own}" for module in (new, known_to_both) for own in (_other_parameter(entry, slot), slot)
            ]
            name = next((other for other in others if other in there), name)
        names[row] = name


def _with_class_of_torch(entry: str) -> str:
    """The entry of a module with PyTorch's name for the class of its layer: ``Linear`` for ``Dense``."""
    parsed = read_name(entry)
    path, _, kind = parsed.stem.rpartition(".")
    return with_stem(parsed, f"{path}.{layer_name(kind) or kind}") if parsed.path else entry


def renamed_module(entry: str, mapping: CellMapping) -> str:
    """The name that the reference has for the record of a module.

    >>> renamed_module("Cell.a.fc.Dense.forward.0", CellMapping({"fc.Dense": "out.Linear"}))
    'Module.a.out.Linear.forward.0'
    """
    paths = mapping.paths
    keys = sorted(paths, key=lambda path: -path.count("."))
    parsed = read_name(entry)
    if parsed.kind not in ("module", "parameters"):
        return entry.replace("Cell.", "Module.", 1) if entry.startswith("Cell.") else entry
    path = parsed.stem.partition(".")[2]
    if path in paths:
        return with_stem(parsed, f"Module.{paths[path]}")
    # As 26.2: a key may also be a part of the path, here of whole words; what one replaced no other touches.
    marked = f".{path}."
    for number, key in enumerate(keys):
        marked = marked.replace(f".{key}.", f".\0{number}\0.", 1)
    for number, key in enumerate(keys):
        marked = marked.replace(f"\0{number}\0", paths[key])
    return with_stem(parsed, f"Module.{marked[1:-1]}")


def pairs_by_hand(mapping: DataMapping, candidate: Rows, reference: Rows) -> Mapping[str, str | None]:
    """The pairs of a data mapping; a warning says what it names and the dumps do not have."""
    pairs, mine, theirs = mapping.pairs, set(candidate.name), set(reference.name)
    for side, unknown in (
        ("candidate", [name for name in pairs if name not in mine]),
        ("reference", [other for other in pairs.values() if other is not None and other not in theirs]),
    ):
        if unknown:
            more = said("and-more-tensors", len(unknown) - 1) if len(unknown) > 1 else ""
            log.warning(said("data-mapping-unknown", side, unknown[0], more))
    return pairs
