"""``.vis``: one step of one rank, or two of them compared, as one JSON file. Writer and reader.

The format of mindstudio-probe 8.1.1, which the TensorBoard plugin ``tb-graph-ascend`` up to 8.3.2 opens. One line for
each node instead of an indent of four: the file is smaller, and every reader of JSON reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from msprobe.errors import InvalidInputError
from msprobe.foreign.json_text import parse_json
from msprobe.graph.colours import colours_of, shown_index, tool_tip_of
from msprobe.graph.graph_files import FileGraph, FileNode, GraphFile, names_of, without_prefixes
from msprobe.graph.node_kinds import ROOT
from msprobe.graph.node_texts import GraphSide, NodeTexts, Written, micro_steps_of
from msprobe.messages import said
from msprobe.paths import StrPath, write_atomically
from msprobe.store.json_index import load_json

SUFFIX = ".vis"
_BUFFER_BYTES = 1 << 20


Place = tuple[GraphSide, int]
"""A node of one side of a graph."""


def write_vis(
    path: StrPath, written: Written, *, published_values: bool = False, places: dict[Place, int] | None = None
) -> int:
    """Write one ``.vis`` file; the number of its bytes. ``published_values``: see :mod:`msprobe.graph.colours`.

    ``places``: where its keys stand, the offset is put at which :func:`with_partners` can add to a node.
    """
    return write_atomically(path, _pieces(written, published_values, places if places is not None else {}))


def with_partners(path: StrPath, target: StrPath, additions: Mapping[int, Any]) -> None:
    """Write a ``.vis`` file again, with the partners of communication calls in other ranks at the given offsets."""

    def pieces() -> Iterator[bytes]:
        with open(path, "rb") as file:
            for offset, partners in sorted(additions.items()):
                yield from _copied(file, offset - file.tell())
                yield b',"matched_distributed":%s' % json.dumps(partners).encode()
            yield from _copied(file, None)

    write_atomically(target, pieces())


def _copied(file: BinaryIO, count: int | None) -> Iterator[bytes]:
    while count is None or count > 0:
        piece = file.read(_BUFFER_BYTES if count is None else min(count, _BUFFER_BYTES))
        if not piece:
            return
        if count is not None:
            count -= len(piece)
        yield piece


def _pieces(written: Written, published: bool, places: dict[Place, int]) -> Iterator[bytes]:
    offset = 0
    for piece, place in _marked_pieces(written, published):
        if place is not None:
            # Before the brace that ends the node.
            places[place] = offset + len(piece) - 1
        offset += len(piece)
        yield piece


def _marked_pieces(written: Written, published: bool) -> Iterator[tuple[bytes, Place | None]]:
    """The file piece by piece; with the node that a piece ends with, if it is a communication call."""
    comparison = written.comparison
    micro_steps = micro_steps_of(written)
    steps = written.candidate.tree.micro_step_count
    more: dict[str, Any] = {"MicroSteps": steps} if steps else {}
    if comparison is None:
        yield b"{", None
        yield from _side(written, "NPU", micro_steps[0], published)
    else:
        for number, (source, _) in enumerate(written.sides):
            yield b'%s"%s": {' % (b",\n" if number else b"{\n", source.encode()), None
            yield from _side(written, source, micro_steps[number], published)
            yield b"}", None
        tips = tool_tip_of(comparison.mode)
        more = {"ToolTip": tips, "Colors": colours_of(comparison.mode, "8.1.1", published), **more}
        more["task"] = comparison.mode
    more["OverflowCheck"] = written.overflow_check
    yield b",\n" + json.dumps(more, indent=1).encode()[1:], None


def _side(
    written: Written, source: GraphSide, micro_steps: list[int], published: bool
) -> Iterator[tuple[bytes, Place | None]]:
    texts = NodeTexts(written, source, "8.1.1")
    side = texts.side
    tree = side.tree
    index = written.comparison.index if written.comparison is not None and source == "NPU" else None
    head = f'"root": "{ROOT}",\n"dump_data_dir": {json.dumps(side.dump_data_dir)},\n"node": {{'
    yield head.encode(), None
    names, parents, kinds = tree.names, tree.parents.tolist(), tree.kinds.tolist()
    for node, name in enumerate(names):
        inputs, outputs = texts.parameters(node)
        parent = parents[node]
        data: dict[str, Any] = {}
        if index is not None and (value := shown_index(index[node], published)) is not None:
            data["precision_index"] = value
        if index is not None and written.comparison is not None and node in written.comparison.verdicts:
            data["Result"] = written.comparison.verdicts[node]
        if node in side.overflow:
            data["overflow_level"] = side.overflow[node]
        content: dict[str, Any] = {
            "upnode": "None" if parent < 0 else names[parent],
            "subnodes": [names[child] for child in tree.children(node)],
            "matched_node_link": texts.link(node),
            "suggestions": {},
            "stack_info": list(side.stacks[node]),
        }
        if parent == 0:
            content["micro_step_id"] = micro_steps[node]
        content["data"] = data
        key = texts.json(name)
        piece = (
            f'{"," if node else ""}\n{key}: {{"id":{key},"node_type":{kinds[node]},"output_data":{outputs},'
            f'"input_data":{inputs},{texts.json(content)[1:]}'
        )
        yield piece.encode(), (source, node) if node in side.exchanges else None
    yield b"}", None


def read_vis(path: StrPath) -> GraphFile:
    """Read a ``.vis`` file, ours or one of mindstudio-probe. Raises InvalidInputError or PathError."""
    place = Path(path)
    content = load_json(place)
    if not isinstance(content, dict) or not ("NPU" in content or "node" in content):
        raise InvalidInputError(said("no-graph-file", path))
    step, rank = step_and_rank(place.name)
    sides: dict[str, Any] = {name: content[name] for name in ("NPU", "Bench") if name in content} or {"NPU": content}
    graphs = []
    for source, side in sides.items():
        if not isinstance(side, dict) or not isinstance(side.get("node"), dict):
            raise InvalidInputError(said("graph-file-lacks-node", path, source))
        graphs.append(_graph(place, source, side, step, rank))
    tips = content.get("ToolTip")
    try:
        tool_tip = parse_json(tips, path) if isinstance(tips, str) and tips else {}
        micro_steps = int(content.get("MicroSteps") or 0)
    except (ValueError, TypeError, OverflowError) as problem:
        raise InvalidInputError(said("graph-file-header-broken", path, problem)) from problem
    return GraphFile(
        path=place,
        is_comparison="NPU" in content,
        task=str(content.get("task") or ""),
        tool_tip=tool_tip,
        colours=content.get("Colors") or {},
        micro_steps=micro_steps,
        overflow_check=bool(content.get("OverflowCheck")),
        graphs=tuple(graphs),
    )


def step_and_rank(name: str) -> tuple[int | None, int | None]:
    """Step and rank by the name of a file; None where it does not say.

    >>> step_and_rank("compare_step3_rank12_20250101000000.vis"), step_and_rank("build_rank0_20250101000000.vis")
    ((3, 12), (None, 0))
    """
    words = name.split("_")
    numbers: dict[str, int | None] = {"step": None, "rank": None}
    for word in words:
        for key in numbers:
            if word.startswith(key) and word[len(key) :].isdigit():
                numbers[key] = int(word[len(key) :])
    return numbers["step"], numbers["rank"]


def _graph(path: Path, source: str, side: dict[str, Any], step: int | None, rank: int | None) -> FileGraph:
    nodes: dict[str, FileNode] = {}
    for name, node_fields in side["node"].items():
        if not isinstance(node_fields, dict):
            raise InvalidInputError(said("graph-node-is-no-object", path, name))
        try:
            nodes[name] = _node(name, node_fields)
        except (ValueError, TypeError, AttributeError) as problem:
            raise InvalidInputError(said("graph-node-broken", path, name, problem)) from problem
    folder = side.get("dump_data_dir")
    return FileGraph(source, step, rank, folder if isinstance(folder, str) else None, nodes)


def _node(name: str, node_fields: dict[str, Any]) -> FileNode:
    data = node_fields.get("data") or {}
    up = node_fields.get("upnode")
    return FileNode(
        name=name,
        kind=int(node_fields.get("node_type") or 0),
        parent=None if up in (None, "None", "") else str(up),
        children=names_of(node_fields.get("subnodes")),
        link=without_prefixes(names_of(node_fields.get("matched_node_link"))),
        index=data.get("precision_index"),
        overflow=data.get("overflow_level"),
        micro_step=int(node_fields.get("micro_step_id") or 0),
        stack=names_of(node_fields.get("stack_info")),
        communication=node_fields.get("matched_distributed") or {},
        inputs_read=node_fields.get("input_data") or {},
        outputs_read=node_fields.get("output_data") or {},
    )
