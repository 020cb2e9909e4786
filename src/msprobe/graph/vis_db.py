"""``.vis.db``: all steps and ranks of a run, or of two compared, in one SQLite file. Its reader is `vis_db_reader`.

The format of mindstudio-probe 26.2.0, which its bundled TensorBoard plugin and ``tb-graph-ascend`` from 8.2.0 on open.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from msprobe.errors import PathError
from msprobe.graph.colours import colours_of, tool_tip_of
from msprobe.graph.node_texts import GraphSide, NodeTexts, Written, micro_steps_of
from msprobe.paths import FILE_MODE

SUFFIX = ".vis.db"

_TABLES = """
CREATE TABLE tb_nodes (id TEXT PRIMARY KEY, graph_id TEXT NOT NULL, node_order INTEGER NOT NULL,
  node_name TEXT NOT NULL, node_type TEXT NOT NULL, up_node TEXT, sub_nodes TEXT, precision_index INTEGER,
  overflow_level TEXT, micro_step_id INTEGER NOT NULL, matched_node_link TEXT, stack_id TEXT, parallel_merge_info TEXT,
  matched_distributed TEXT, modified INTEGER NOT NULL, input_data TEXT, output_data TEXT, data_source TEXT,
  dump_data_dir TEXT, step INTEGER NOT NULL, rank INTEGER NOT NULL, is_distributed INTEGER);
CREATE TABLE tb_config (id TEXT PRIMARY KEY, graph_type TEXT NOT NULL, task TEXT, tool_tip TEXT, micro_steps INTEGER,
  overflow_check INTEGER, node_colors TEXT NOT NULL, rank_list TEXT NOT NULL, step_list TEXT NOT NULL);
CREATE TABLE tb_stack (id TEXT PRIMARY KEY, stack_info TEXT);
"""
_INDEXES = (
    "step, rank, data_source, up_node, node_order",
    "step, rank, data_source, node_name",
    "step, rank, data_source, node_order",
    "step, rank, node_order",
    "step, rank, micro_step_id, node_order",
    "step, rank, modified, matched_node_link",
    "is_distributed",
)
_COLUMNS = 22
# A row is 1 to 4 KB: of the usual pages of 4 KB a quarter would stay empty (bench/graph).
_PAGE_BYTES = 32768
_UNSHARED = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF"


@dataclass(frozen=True)
class DbPart:
    """A file with the rows of one step and rank, on the way to a database; and what they add to its configuration."""

    path: Path
    step: int
    rank: int
    micro_steps: int
    config: tuple[str, str, str, int, str]
    """Kind of graph, task, tool tip, overflow check, colours."""


def write_part(path: Path, written: Written) -> DbPart:
    """Write the rows of one step and rank; :func:`write_vis_db` makes a database of them. Raises PathError."""
    comparison, side = written.comparison, written.candidate
    micro_steps = micro_steps_of(written)
    with _growing(path, path) as database:
        database.executescript(_TABLES)
        for number, (source, _) in enumerate(written.sides):
            _add_side(database, written, source, micro_steps[number])
    overflow = int(written.overflow_check)
    config = ("build", "", "", overflow, "null")
    if comparison is not None:
        colours = json.dumps(colours_of(comparison.mode, "26.2"))
        config = ("compare", comparison.mode, tool_tip_of(comparison.mode), overflow, colours)
    return DbPart(path, side.step, side.rank, side.tree.micro_step_count, config)


def write_vis_db(path: Path, parts: Sequence[DbPart], additions: Iterable[tuple[str, Any]]) -> None:
    """Make one database of all parts, whose files are used up; it appears under its name when it is whole.

    ``additions``: ids of rows of communication calls with their partners in other ranks. Raises PathError.
    """
    whole = parts[0].path
    with _growing(whole, path) as database:
        for part in parts[1:]:
            database.execute("ATTACH ? AS part", (str(part.path),))
            for table in ("tb_nodes", "tb_stack"):
                database.execute(f"INSERT INTO {table} SELECT * FROM part.{table} ORDER BY rowid")
            database.commit()
            database.execute("DETACH part")
            part.path.unlink()
        rows = ((_json(addition), key) for key, addition in additions)
        database.executemany("UPDATE tb_nodes SET matched_distributed = ? WHERE id = ?", rows)
        kind, task, tips, overflow, colours = parts[-1].config
        micro_steps = max(part.micro_steps for part in parts)
        ranks = json.dumps(sorted({part.rank for part in parts}))
        steps = json.dumps(sorted({part.step for part in parts}))
        row = ("1", kind, task, tips, micro_steps, overflow, colours, ranks, steps)
        database.execute("INSERT INTO tb_config VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        for number, columns in enumerate(_INDEXES, 1):
            database.execute(f"CREATE INDEX index{number} ON tb_nodes ({columns})")
    os.chmod(whole, FILE_MODE)
    os.replace(whole, path)


@contextlib.contextmanager
def _growing(file: Path, path: Path) -> Iterator[sqlite3.Connection]:
    """A database that nobody else reads before it is whole: without a journal. ``path`` names it in errors."""
    try:
        database = sqlite3.connect(file)
        try:
            database.executescript(f"PRAGMA page_size = {_PAGE_BYTES}; {_UNSHARED}")
            yield database
            database.commit()
        finally:
            database.close()
    except sqlite3.Error as problem:
        raise PathError(f'cannot write "{path}": {problem}.') from problem


def _add_side(database: sqlite3.Connection, written: Written, source: GraphSide, micro_steps: Sequence[int]) -> None:
    texts = NodeTexts(written, source, "26.2")
    graph_id = f"{source}_{texts.side.step}_{texts.side.rank}"
    stacks = _add_stacks(database, texts.side.stacks, graph_id)
    rows = _rows(written, source, texts, graph_id, micro_steps, stacks)
    marks = ", ".join("?" * _COLUMNS)
    database.executemany(f"INSERT INTO tb_nodes VALUES ({marks})", map(_storable, rows))


def _storable(row: Sequence[Any]) -> Sequence[Any]:
    """A row whose texts UTF-8 can hold: what names of a dump have of lone surrogates is written as an escape."""
    if all(cell.isascii() for cell in row if isinstance(cell, str)):
        return row
    return [cell.encode("utf-8", "backslashreplace").decode() if isinstance(cell, str) else cell for cell in row]


def id_of(source: GraphSide, step: int, rank: int, name: str) -> str:
    """The id of the row of a node."""
    return f"{source}_{step}_{rank}_{name}"


def _add_stacks(database: sqlite3.Connection, stacks: Sequence[Sequence[str]], graph_id: str) -> list[str]:
    """Write each stack once; the key of each node's."""
    known: dict[tuple[str, ...], str] = {}
    by_object: dict[int, str] = {}
    keys: list[str] = []
    for frames in stacks:
        key = by_object.get(id(frames))
        if key is None:
            key = by_object[id(frames)] = known.setdefault(tuple(frames), f"{graph_id}_{len(known)}")
        keys.append(key)
    rows = ((key, json.dumps(list(frames))) for frames, key in known.items())
    database.executemany("INSERT INTO tb_stack VALUES (?, ?)", rows)
    return keys


def _rows(
    written: Written,
    source: GraphSide,
    texts: NodeTexts,
    graph_id: str,
    micro_steps: Sequence[int],
    stacks: Sequence[str],
) -> Iterator[tuple[Any, ...]]:
    side = texts.side
    tree, names = side.tree, side.tree.names
    index = written.comparison.index if written.comparison is not None and source == "NPU" else None
    kinds, parents = tree.kinds.tolist(), tree.parents.tolist()
    for order, node in enumerate(tree.by_order.tolist()):
        inputs, outputs = texts.parameters(node)
        children = tree.children(node)
        merged = side.merged.get(node)
        name = names[node]
        yield (
            f"{graph_id}_{name}",
            graph_id,
            order,
            name,
            str(kinds[node]),
            names[parents[node]] if parents[node] >= 0 else "",
            _json([names[child] for child in children]) if children else "",
            None if index is None else index[node],
            side.overflow.get(node),
            micro_steps[node],
            _json(texts.link(node)),
            stacks[node],
            json.dumps(merged) if merged else "",
            "{}",
            0,
            inputs,
            outputs,
            source,
            side.dump_data_dir,
            side.step,
            side.rank,
            int(name.startswith("Distributed.")),
        )


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError):  # lone surrogates
        return json.dumps(value)
