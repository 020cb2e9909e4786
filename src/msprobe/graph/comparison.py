"""Two graphs side by side: who answers to whom, how far each pair is off, and what graph files say of it."""

from __future__ import annotations

from dataclasses import dataclass

from msprobe.compare.mapping_files import LayerMapping
from msprobe.graph.differences import DIFFERENT, PASS, Differ, NodeDifference
from msprobe.graph.index import best_of, index_of
from msprobe.graph.levels import Row, levels_of
from msprobe.graph.matching import NOTHING, Partners, match, paired_parameters
from msprobe.graph.matching import Mode as MatchMode
from msprobe.graph.modes import Mode, mode_of
from msprobe.graph.node_kinds import GROUP
from msprobe.graph.side import GraphOfSide
from msprobe.graph.value_texts import Form
from msprobe.store.part import DumpPart


@dataclass(eq=False)
class GraphComparison:
    """Two sides of one step of one rank. All columns have one place for each node of the candidate.

    ``partner``: its node in the reference, -1 for none. ``index``: the number in the files (8.1.1: 0 to 1; 26.2: 0,
    0.5 or 1), None where there is none. ``columns``: for each argument, then each result, what graph files add, as
    JSON text. ``verdicts``: ``pass`` or ``Different`` where digests are compared.
    """

    candidate: GraphOfSide
    reference: GraphOfSide
    mode: Mode
    form: Form
    partner: Partners
    index: list[float | int | None]
    columns: dict[int, list[str]]
    verdicts: dict[int, str]


def compare_sides(
    candidate: GraphOfSide,
    reference: GraphOfSide,
    parts: tuple[DumpPart, DumpPart],
    *,
    form: Form = "8.1.1",
    match_mode: MatchMode = "aligned",
    mapping: LayerMapping | None = None,
    partner: Partners | None = None,
) -> GraphComparison:
    """Pair the nodes of two sides, unless ``partner`` says who answers to whom, and compare each pair.

    Raises TaskMismatchError if the dumps are of different kinds.
    """
    mode = mode_of(candidate, reference, mapping is not None)
    if partner is None:
        partner = match(candidate, reference, parts, match_mode, mapping)
    count = len(candidate.tree)
    index: list[float | int | None] = [None] * count
    columns: dict[int, list[str]] = {}
    verdicts: dict[int, str] = {}
    differ = Differ(mode, form, parts)
    for node, other in enumerate(partner.tolist()):
        if other < 0 or not (candidate.inputs[node] or candidate.outputs[node]):
            continue
        name = candidate.tree.names[node]
        pairs = paired_parameters(candidate, node, reference, other)
        rows: list[Row] = [
            (mine, theirs, None if theirs is NOTHING else differ.difference(mine, theirs))
            for (_, mine), theirs in pairs
        ]
        end = len(candidate.inputs[node])
        inputs, outputs = rows[:end], rows[end:]
        texts = ["" if difference is None else difference.columns for _, _, difference in rows]
        if form == "26.2" and mode != "structure":
            worst, more = levels_of(name, mode, inputs, outputs)
            index[node] = worst if worst == 0.5 else int(worst)
            # Of digests the level says it all.
            texts = (
                more
                if mode == "md5"
                else [f"{reason},{level}" if reason else "" for reason, level in zip(texts, more, strict=True)]
            )
        else:
            surplus = any(theirs is NOTHING for _, theirs, _ in rows)
            index[node] = index_of(name, mode, _differences(inputs), _differences(outputs), surplus)
            if mode == "md5":
                verdicts[node] = PASS if index[node] == 1 else DIFFERENT
        columns[node] = texts
    _rate_groups(candidate, form, mode, index)
    return GraphComparison(
        candidate=candidate,
        reference=reference,
        mode=mode,
        form=form,
        partner=partner,
        index=index,
        columns=columns,
        verdicts=verdicts,
    )


def _differences(rows: list[Row]) -> list[NodeDifference | None]:
    return [difference for _, _, difference in rows]


def _rate_groups(candidate: GraphOfSide, form: Form, mode: Mode, index: list[float | int | None]) -> None:
    """Groups have the worst index of their calls."""
    reverse = mode == "md5" and form == "8.1.1"
    for node, kind in enumerate(candidate.tree.kinds.tolist()):
        if kind != GROUP:
            continue
        indexes = [child_index for child in candidate.tree.children(node) if (child_index := index[child]) is not None]
        worst_one = (min if reverse else max)(indexes, default=None)
        index[node] = (best_of(mode) if form == "8.1.1" else 0) if worst_one is None else worst_one
