"""Reads ``.vis.db`` files, ours and those of mindstudio-probe 8.2 to 26.2, whatever is wrong with them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msprobe.errors import InvalidInputError
from msprobe.foreign.database import Database, open_database
from msprobe.graph.graph_files import FileGraph, FileNode, GraphFile, names_of, without_prefixes
from msprobe.messages import joined, said
from msprobe.paths import StrPath

# What is read; is_distributed came with 26.2 and is not.
_READ = {
    "tb_nodes": (
        "node_order node_name node_type up_node sub_nodes precision_index overflow_level micro_step_id "
        "matched_node_link stack_id parallel_merge_info matched_distributed input_data output_data data_source "
        "dump_data_dir step rank"
    ).split(),
    "tb_config": "graph_type task tool_tip micro_steps overflow_check node_colors".split(),
    "tb_stack": ["id", "stack_info"],
}
_CONFIG = _READ["tb_config"]
_NAME, _STACK, _SOURCE, _FOLDER, _STEP, _RANK = map(
    _READ["tb_nodes"].index, ("node_name", "stack_id", "data_source", "dump_data_dir", "step", "rank")
)


def read_vis_db(path: StrPath) -> GraphFile:
    """Read a ``.vis.db`` file, ours or one of mindstudio-probe (with or without ``is_distributed``).

    It is opened read-only. Raises PathError if it is not there, InvalidInputError if it is no such database.
    """
    try:
        with open_database(path) as database:
            return _read(Path(path), database)
    except sqlite3.Error as problem:
        raise InvalidInputError(said("no-graph-database", path, problem)) from problem


def _read(path: Path, database: Database) -> GraphFile:
    _check_columns(path, database)
    config = next((dict(zip(_CONFIG, row, strict=True)) for row in database.rows(_CONFIG, "tb_config")), None)
    if config is None:
        raise InvalidInputError(said("graph-database-not-whole", path))
    stacks = dict(database.rows(_READ["tb_stack"], "tb_stack"))
    read_stacks: dict[Any, tuple[str, ...]] = {}
    graphs: dict[tuple[int, int, str], dict[str, FileNode]] = {}
    folders: dict[tuple[int, int, str], Any] = {}
    order = "ORDER BY step, rank, data_source DESC, node_order"
    for row in database.rows(_READ["tb_nodes"], "tb_nodes", order):
        place, stack = (row[_STEP], row[_RANK], row[_SOURCE]), row[_STACK]
        try:
            if stack not in read_stacks:
                read_stacks[stack] = tuple(_list(stacks.get(stack)))
            node = _node(row, read_stacks[stack])
        except (ValueError, TypeError, RecursionError) as problem:
            raise InvalidInputError(said("graph-row-broken", path, row[_NAME], problem)) from problem
        graphs.setdefault(place, {})[node.name] = node
        folders[place] = row[_FOLDER]
    try:
        tips, colours = json.loads(config["tool_tip"] or "{}"), json.loads(config["node_colors"] or "null") or {}
    except (ValueError, TypeError, RecursionError) as problem:
        raise InvalidInputError(said("graph-table-broken", path, "tb_config", problem)) from problem
    return GraphFile(
        path=path,
        is_comparison=config["graph_type"] == "compare",
        task=config["task"] or "",
        tool_tip=tips,
        colours=colours,
        micro_steps=config["micro_steps"] or 0,
        overflow_check=bool(config["overflow_check"]),
        graphs=tuple(
            FileGraph(source, step, rank, folders[step, rank, source], nodes)
            for (step, rank, source), nodes in graphs.items()
        ),
    )


def _check_columns(path: Path, database: Database) -> None:
    """Say what the tables lack: other versions, and other programs, have others."""
    lacking: list[str] = []
    for table, wanted in _READ.items():
        columns_there = database.columns(table)
        columns = [column for column in wanted if column not in columns_there]
        if not columns_there:
            lacking.append(said("table-named", table))
        elif columns:
            lacking.append(said("columns-of-table", ", ".join(columns), table))
    if lacking:
        raise InvalidInputError(said("graph-database-lacks", path, joined("; ", lacking)))


def _node(row: tuple[Any, ...], stack: tuple[str, ...]) -> FileNode:
    _, name, kind, parent, children, index, overflow, micro_step, link, _, merged, communication, inputs, outputs = row[
        :14
    ]
    return FileNode(
        name=str(name),
        kind=int(kind),
        parent=str(parent) if parent else None,
        children=names_of(_list(children)),
        link=without_prefixes(_list(link)),
        index=index,
        overflow=overflow,
        micro_step=micro_step,
        stack=stack,
        communication=json.loads(communication or "{}"),
        inputs_read=inputs or "",
        outputs_read=outputs or "",
        merged=names_of(_list(merged)),
    )


def _list(text: Any) -> Iterable[Any]:
    elements = json.loads(text) if text else []
    return elements if isinstance(elements, list) else []
