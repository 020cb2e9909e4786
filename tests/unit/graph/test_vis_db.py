"""Databases of other versions, and what is none."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import raising

from msprobe.errors import InvalidInputError
from msprobe.graph.graph_files import read_graph_file

# The columns of mindstudio-probe 8.2 and 8.3: those of 26.2 without is_distributed.
_NODES = (
    "id TEXT PRIMARY KEY, graph_id TEXT NOT NULL, node_order INTEGER NOT NULL, node_name TEXT NOT NULL, "
    "node_type TEXT NOT NULL, up_node TEXT, sub_nodes TEXT, precision_index INTEGER, overflow_level TEXT, "
    "micro_step_id INTEGER NOT NULL, matched_node_link TEXT, stack_id TEXT, parallel_merge_info TEXT, "
    "matched_distributed TEXT, modified INTEGER NOT NULL, input_data TEXT, output_data TEXT, data_source TEXT, "
    "dump_data_dir TEXT, step INTEGER NOT NULL, rank INTEGER NOT NULL"
)
_CONFIG = (
    "id TEXT PRIMARY KEY, graph_type TEXT NOT NULL, task TEXT, tool_tip TEXT, micro_steps INTEGER, "
    "overflow_check INTEGER, node_colors TEXT NOT NULL, rank_list TEXT NOT NULL, step_list TEXT NOT NULL"
)
_ROOT, _CALL = "DefaultModel", "Torch.relu.0.forward"


def database(path: Path, **changes: Any) -> Path:
    """A comparison of one call, index 0.5, step 1, rank 2. ``changes``: of the candidate's row of the call."""
    made = sqlite3.connect(path)
    made.execute(f"CREATE TABLE tb_nodes ({_NODES})")
    made.execute(f"CREATE TABLE tb_config ({_CONFIG})")
    made.execute("CREATE TABLE tb_stack (id TEXT PRIMARY KEY, stack_info TEXT)")
    colours = json.dumps({"#FFDC7F": {"value": [0.4, 0.6], "description": ""}})
    config = ("1", "compare", "summary", "{}", 1, 0, colours, "[2]", "[1]")
    made.execute("INSERT INTO tb_config VALUES (?,?,?,?,?,?,?,?,?)", config)
    made.execute("INSERT INTO tb_stack VALUES ('s', ?)", (json.dumps(["File a.py, line 1"]),))
    output = json.dumps({f"{_CALL}.output.0": {"type": "torch.Tensor", "shape": "[2]", "Max": "1.0"}})
    for source in ("NPU", "Bench"):
        for order, name in enumerate((_CALL, _ROOT)):
            is_root = name == _ROOT
            row = {
                "id": f"{source}_1_2_{name}", "graph_id": f"{source}_1_2", "node_order": order, "node_name": name,
                "node_type": "0" if is_root else "1", "up_node": "" if is_root else _ROOT,
                "sub_nodes": json.dumps([_CALL]) if is_root else "", "precision_index": None if is_root else 0.5,
                "overflow_level": None, "micro_step_id": 0, "stack_id": "s", "parallel_merge_info": "",
                "matched_node_link": json.dumps([f"B___{_ROOT}", f"B___{name}"]), "matched_distributed": "{}",
                "modified": 0, "input_data": "{}", "output_data": "{}" if is_root else output, "data_source": source,
                "dump_data_dir": None, "step": 1, "rank": 2,
            }  # fmt: skip
            if not is_root and source == "NPU":
                row |= changes
            marks = ",".join("?" * len(row))
            made.execute(f"INSERT INTO tb_nodes ({','.join(row)}) VALUES ({marks})", list(row.values()))
    made.commit()
    made.close()
    return path


def test_a_database_of_8_2_and_8_3_is_read(tmp_path: Path) -> None:
    read = read_graph_file(database(tmp_path / "x.vis.db"))
    assert (read.is_comparison, read.task, read.micro_steps) == (True, "summary", 1)
    assert [(one.source, one.step, one.rank) for one in read.graphs] == [("NPU", 1, 2), ("Bench", 1, 2)]
    node = read.graphs[0].nodes[_CALL]
    assert (node.partner, node.index, node.parent) == (_CALL, 0.5, _ROOT)
    assert node.stack == ("File a.py, line 1",)
    assert node.outputs()[f"{_CALL}.output.0"]["Max"] == "1.0"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DROP TABLE tb_stack", "it lacks the table tb_stack."),
        ("DROP TABLE tb_config", "it lacks the table tb_config."),
        ("ALTER TABLE tb_nodes RENAME COLUMN up_node TO above", "it lacks up_node in tb_nodes."),
        ("ALTER TABLE tb_stack RENAME COLUMN stack_info TO info", "it lacks stack_info in tb_stack."),
        ("DELETE FROM tb_config", "its table tb_config is empty."),
        ("UPDATE tb_config SET node_colors = '{'", "its table tb_config is broken"),
    ],
)
def test_what_a_database_lacks_is_reported(tmp_path: Path, change: str, words: str) -> None:
    path = database(tmp_path / "x.vis.db")
    with sqlite3.connect(path) as made:
        made.execute(change)
    with pytest.raises(InvalidInputError, match=rf"x\.vis\.db.*{re.escape(words)}"):
        read_graph_file(path)


@pytest.mark.parametrize("changes", [{"node_type": "x"}, {"sub_nodes": "["}, {"matched_node_link": "[" * 100_000}])
def test_a_broken_row_is_named(tmp_path: Path, changes: dict[str, str]) -> None:
    with raising(InvalidInputError, "graph-row-broken", node=_CALL):
        read_graph_file(database(tmp_path / "x.vis.db", **changes))


@pytest.mark.parametrize("changes", [{"node_type": "x"}, {"stack_info": 3}, {"data": [1]}, {"micro_step_id": [1]}])
def test_a_broken_node_of_a_vis_file_is_named(tmp_path: Path, changes: dict[str, Any]) -> None:
    node = {"node_type": 1, "micro_step_id": 1, **changes}
    (tmp_path / "x.vis").write_text(json.dumps({"root": _ROOT, "node": {_CALL: node}}))
    with raising(InvalidInputError, "graph-node-broken", name=_CALL):
        read_graph_file(tmp_path / "x.vis")
