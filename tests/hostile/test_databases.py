"""A database of a stranger is a set of tables: no views, no computed columns; rows, bytes and steps end."""

from __future__ import annotations

import os
import sqlite3

import pytest

from hostile.limits import Called
from msprobe.monitor.trend_database import FILE_NAME

NODES = (
    "node_order,node_name,node_type,up_node,sub_nodes,precision_index,overflow_level,micro_step_id,matched_node_link,"
    "stack_id,parallel_merge_info,matched_distributed,input_data,output_data,data_source,dump_data_dir,step,rank"
)
ROW = "{},{},1,'','[]',0,0,0,'[]',0,'[]','{{}}','','','NPU','',0,0"
QUOTED = "'a'"
TABLE = f"create table tb_nodes({NODES}); insert into tb_nodes values({ROW.format(1, QUOTED)});"
COMPUTED = (
    f"create table tb_nodes({NODES.replace('node_name', 'node_name as (hex(zeroblob(450000000)))')});"
    f"insert into tb_nodes({NODES.replace('node_name,', '')}) values({ROW.format(1, 'X').replace('X,', '')});"
)
ENDLESS = "with recursive r(n) as (select 1 union all select n+1 from r)"


def made(folder, nodes):
    file = folder / "graph.vis.db"
    with sqlite3.connect(file) as base:
        base.executescript(
            "create table tb_config(graph_type,task,tool_tip,micro_steps,overflow_check,node_colors);"
            "insert into tb_config values('single','','{}',0,0,'{}'); create table tb_stack(id,stack_info);" + nodes
        )
    base.close()
    return file


def viewed(folder, file):
    return Called("view", file, "--html", folder / "page.html", cwd=folder)


def test_a_table(tmp_path):
    answer = viewed(tmp_path, made(tmp_path, TABLE))
    answer.demand_quick()
    assert answer.status == 0, answer.text


@pytest.mark.parametrize(
    "nodes",
    [
        f"create view tb_nodes({NODES}) as {ENDLESS} select {ROW.format('n', QUOTED + '||n')} from r;",
        f"create view tb_nodes({NODES}) as select {ROW.format(1, 'hex(zeroblob(450000000))')};",
        COMPUTED,
        f"create virtual table tb_nodes using fts5({NODES.replace('rank', 'rank_of')});",
        TABLE.replace("'[]'", "'" + "[" * 100_000 + "'", 1),
        TABLE.replace("(1,'a',1,", "(1,'a','" + "9" * 5000 + "',"),
        TABLE.replace("'a'", "cast(x'ff00fe' as text)"),
    ],
    ids=["view", "text", "computed", "virtual", "nested", "digits", "no-text"],
)
def test_what_is_no_plain_table_of_plain_values(tmp_path, nodes):
    viewed(tmp_path, made(tmp_path, nodes)).demand_refused()


def test_a_page_that_stands_for_many(tmp_path):
    """The inner pages of a table all name one page of rows, which name one another: few bytes, rows without end."""
    fill = f"insert into tb_nodes {ENDLESS} select {ROW.format('n', QUOTED + '||n')} from r limit 20000;"
    file = made(tmp_path, TABLE + fill)
    base = sqlite3.connect(file)
    (size,) = base.execute("pragma page_size").fetchone()
    (root,) = base.execute("select rootpage from sqlite_master where name = 'tb_nodes'").fetchone()
    base.close()
    data = bytearray(file.read_bytes())
    start = (root - 1) * size
    assert data[start] == 5, "the root is an inner page"
    count = int.from_bytes(data[start + 3 : start + 5], "big")
    for cell in range(count):  # the children of the root become the root itself
        at = start + int.from_bytes(data[start + 12 + 2 * cell : start + 14 + 2 * cell], "big")
        data[at : at + 4] = root.to_bytes(4, "big")
    file.write_bytes(data)
    viewed(tmp_path, file).demand_refused()


def test_a_file_that_claims_to_be_larger_or_is_no_file(tmp_path):
    file = made(tmp_path, TABLE)
    whole = file.read_bytes()
    for data in (whole[:4096], whole[:100], b"SQLite format 3\0", whole[:5000] + b"\xff" * (len(whole) - 5000)):
        file.write_bytes(data)
        viewed(tmp_path, file).demand_refused()
    file.unlink()
    os.mkfifo(file)
    viewed(tmp_path, file).demand_refused()


def test_nothing_is_written_beside_a_database(tmp_path):
    file = made(tmp_path, TABLE)
    base = sqlite3.connect(file)
    base.execute("pragma journal_mode = wal")
    base.close()
    (tmp_path / "graph.vis.db-wal").write_bytes(b"x" * 5000)
    before = sorted(path.name for path in tmp_path.iterdir())
    viewed(tmp_path, file).demand_quick()
    after = sorted(path.name for path in tmp_path.iterdir() if path.name != "page.html")
    assert before == after


_TREND = (
    "create table monitoring_metrics(metric_id,metric_name); insert into monitoring_metrics values(1,'grad');"
    "create table monitoring_targets(target_id,target_name,vpp_stage,micro_step);"
    "create table global_stats(max_rank,min_step,max_step,grad); insert into global_stats values(0,0,1,'norm');"
)
_VALUES = "create table trend_data(rank,step,target_id,metric_id,norm);"


@pytest.mark.parametrize(
    "rest",
    [
        f"create view trend_data(rank,step,target_id,metric_id,norm) as {ENDLESS} select 0, n, 1, 1, 1 from r;",
        _VALUES + "insert into trend_data values(0,0,7,1,1.0);",
        _VALUES + "insert into monitoring_targets values(1,'w','x',0); insert into trend_data values(0,0,1,1,'text');",
        _VALUES + f"insert into monitoring_metrics values('{'9' * 5000}','x');",
    ],
    ids=["view", "no-target", "no-numbers", "digits"],
)
def test_databases_of_the_monitor(tmp_path, rest):
    for side in "AB":
        place = tmp_path / side / "Nov01_10-00-00-rank0-0123abcd"
        place.mkdir(parents=True)
        with sqlite3.connect(place / FILE_NAME) as base:
            base.executescript(_TREND + rest)
        base.close()
    answer = Called("monitor", "diff", tmp_path / "A", tmp_path / "B", cwd=tmp_path)
    answer.demand_quick()
    assert answer.status != 0, answer.text
