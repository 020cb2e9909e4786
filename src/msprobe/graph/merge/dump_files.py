"""Merged ranks as a dump of their own: ``dump.json``, ``construct.json`` and ``stack.json`` of one graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msprobe.graph.side import GraphOfSide
from msprobe.paths import make_folder, write_atomically
from msprobe.store import layout


def write_merged(output: Path, side: GraphOfSide) -> Path:
    """Write one graph to ``step{S}/rank{R}`` below ``output``; its folder. ``dump.json`` has the key ``is_merged``."""
    folder = layout.rank_folder(layout.step_folder(output, side.step), side.rank)
    make_folder(folder)
    tree = side.tree
    data: dict[str, Any] = {}
    construct: dict[str, str] = {}
    stacks: dict[tuple[str, ...], list[str]] = {}
    for node in tree.by_order.tolist()[:-1]:
        name = tree.names[node]
        construct[name] = tree.names[tree.parents[node]]
        if side.stacks[node]:
            stacks.setdefault(tuple(side.stacks[node]), []).append(name)
        count = len(side.inputs[node]) - side.parameter_counts.get(node, 0)
        record: dict[str, Any] = {
            "input_args": [leaf for _, leaf in side.inputs[node][:count]],
            "input_kwargs": {},
            "output": [leaf for _, leaf in side.outputs[node]],
        }
        parameters = side.inputs[node][count:]
        if parameters:
            record["parameters"] = {
                parameter_name.rpartition(".parameters.")[2]: leaf for parameter_name, leaf in parameters
            }
        if side.inputs[node] or side.outputs[node]:
            data[name] = record
    header = {"task": side.task, "level": "mix", "framework": side.framework, "dump_data_dir": None, "is_merged": True}
    for file, content in (
        (layout.DUMP_FILE, {**header, "data": data}),
        (layout.CONSTRUCT_FILE, construct),
        (layout.STACK_FILE, {str(number): [names, frames] for number, (frames, names) in enumerate(stacks.items())}),
    ):
        write_atomically(folder / file, json.dumps(content, indent=1).encode())
    return folder
