"""The published viewers open our graph files, and the published builder makes the same graphs of the same dumps."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dumps import HERE, run_command
from reference_env import clean_environment, make, python_of
from support.command_line import call
from support.graph_models import Renamed, compare_file, recording, scaled

from msprobe.graph.graph_files import read_graph_file

Recorded = Callable[[str], Path]
_SETTINGS: dict[str, dict[str, Any]] = {
    "statistics": {},
    "md5": {"summary_mode": "md5"},
    "tensor": {"task": "tensor"},
}
_MLP = "Module.layers.2.mlp.MLP.forward.0"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """``good-tensor`` and the like: the folder of the step."""
    place = tmp_path_factory.mktemp("recorded")

    def folder(name: str) -> Path:
        side, _, kind = name.partition("-")
        if not (place / name).exists():
            change = {"bad": {"change": scaled}, "renamed": {"block": {"name": "ffn", "mlp": Renamed}}}.get(side, {})
            recording(place / name, **_SETTINGS.get(kind, {}), **change)
        return place / name / "step0"

    return folder


def published(version: str, place: Path, candidate: Path, reference: Path | None, *flags: str) -> Path:
    """The file that the published builder writes."""
    make(version)
    place.mkdir(parents=True)
    out = place / "out"
    if version == "8.1.1":
        file = compare_file(place, candidate, reference)
        run_command(version, "-f", "pytorch", "graph", "-i", file, "-o", out, *flags, cwd=place)
    else:
        golden = [] if reference is None else ["-gp", reference]
        run_command(version, "graph_visualize", "-tp", candidate, *golden, "-o", out, *flags, cwd=place)
    (found,) = out.iterdir()
    return found


def ours(version: str, place: Path, candidate: Path, reference: Path | None, *flags: str) -> Path:
    place.mkdir(parents=True)
    out = place / "out"
    if version == "8.1.1":
        file = compare_file(place, candidate, reference)
        done = call("-f", "pytorch", "graph", "-i", file, "-o", out, "--strict-reference-values", *flags)
    else:
        golden = [] if reference is None else ["-gp", reference]
        done = call("graph_visualize", "-tp", candidate, *golden, "-o", out, *flags)
    assert done.returncode == 0, done.stderr
    (found,) = out.iterdir()
    return found


@pytest.mark.parametrize("kind", _SETTINGS)
def test_our_vis_is_that_of_8_1_1_but_for_the_words_that_explain(tmp_path: Path, recorded: Recorded, kind: str) -> None:
    sides = recorded(f"bad-{kind}"), recorded(f"good-{kind}")
    theirs = json.loads(published("8.1.1", tmp_path / "theirs", *sides).read_text())
    mine = json.loads(ours("8.1.1", tmp_path / "ours", *sides).read_text())
    assert list(mine) == list(theirs)
    for side in ("NPU", "Bench"):
        assert list(mine[side]["node"]) == list(theirs[side]["node"])
        for name, node in theirs[side]["node"].items():
            assert mine[side]["node"][name] == node, name
    assert {c: one["value"] for c, one in mine["Colors"].items()} == {
        c: one["value"] for c, one in theirs["Colors"].items()
    }
    # Ours explains one column more.
    assert set(json.loads(mine["ToolTip"])) - {"EucDist"} == set(json.loads(theirs["ToolTip"])) - {"EucDist"}
    assert (mine["MicroSteps"], mine["task"]) == (theirs["MicroSteps"], theirs["task"])


@pytest.mark.parametrize("flags", [("--strict", ""), ("-f", "-f"), ("-lm", "-lm")])
def test_the_ways_to_pair_of_8_1_1_find_the_same_partners(
    tmp_path: Path, recorded: Recorded, flags: tuple[str, str]
) -> None:
    sides = recorded("renamed-statistics"), recorded("good-statistics")
    mine, theirs = list(flags[:1]), list(filter(None, flags[1:]))
    if "-lm" in flags:
        (tmp_path / "mapping.yaml").write_text("Block:\n  ffn: mlp\n")
        mine.append(str(tmp_path / "mapping.yaml"))
        theirs.append(str(tmp_path / "mapping.yaml"))
    found = [
        {name: node["matched_node_link"][-1:] for name, node in json.loads(file.read_text())["NPU"]["node"].items()}
        for file in (
            ours("8.1.1", tmp_path / "ours", *sides, *mine),
            published("8.1.1", tmp_path / "theirs", *sides, *theirs),
        )
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", _SETTINGS)
def test_our_database_is_that_of_26_2_0_but_for_the_words_that_explain(
    tmp_path: Path, recorded: Recorded, kind: str
) -> None:
    sides = recorded(f"bad-{kind}"), recorded(f"good-{kind}")
    mine, theirs = (
        rows_of(file)
        for file in (ours("26.2", tmp_path / "ours", *sides), published("26.2.0", tmp_path / "theirs", *sides))
    )
    assert set(mine) == set(theirs)
    for name, row in theirs.items():
        assert mine[name] == row, name


def rows_of(file: Path) -> dict[str, dict[str, Any]]:
    """The rows of tb_nodes, JSON taken apart, with the stack in place of its key and without sentences."""
    database = sqlite3.connect(file)
    database.row_factory = sqlite3.Row
    stacks = dict(database.execute("SELECT id, stack_info FROM tb_stack").fetchall())
    found = {}
    for one in database.execute("SELECT * FROM tb_nodes"):
        row = dict(one)
        row["stack_id"] = json.loads(stacks[row["stack_id"]])
        for key in ("input_data", "output_data", "sub_nodes", "matched_node_link", "matched_distributed"):
            row[key] = json.loads(row[key] or "[]")
        for key in ("input_data", "output_data"):
            for fields in row[key].values():
                fields.pop("Err_message", None)
        found[row["id"]] = row
    return found


@pytest.mark.parametrize(
    ("viewer", "form", "values", "leaves"),
    [
        ("plugin-8.3.2", "json", {"red": [[0.8, 1]]}, None),
        ("plugin-8.3.2", "db", {"yellow": [[0.3, 0.6]]}, ["Functional.linear.12.forward"]),
        ("26.2.0", "db", {"yellow": ["warning"]}, ["Functional.linear.12.forward"]),
    ],
)
def test_published_viewers_draw_our_files(
    tmp_path: Path, recorded: Recorded, viewer: str, form: str, values: dict[str, Any], leaves: list[str] | None
) -> None:
    make(viewer)
    sides = recorded("bad-statistics"), recorded("good-statistics")
    both = ["-tp", sides[0], "-gp", sides[1]]
    command = (
        ["-f", "pytorch", "graph", "-i", compare_file(tmp_path, *sides)] if form == "json" else ["graph_visualize"]
    )
    assert call(*command, *(both if form == "db" else []), "-o", tmp_path / "out").returncode == 0
    (file,) = (tmp_path / "out").iterdir()
    tag = file.name.removesuffix(".db").removesuffix(".vis")
    words = [str(tmp_path / "out"), tag, form, _MLP, json.dumps(values)]
    done = subprocess.run(
        [str(python_of(viewer)), str(HERE / "ask_plugin.py"), *words],
        env=clean_environment(), capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout)
    assert answers["load_meta_dir"] == {"data": {"out": {"type": form, "tags": [tag]}}, "error": []}
    nodes = read_graph_file(file).graphs[0].nodes
    root = answers["root"]["data"]
    assert set(root) == {"DefaultModel", *nodes["DefaultModel"].children}
    block = nodes["Module.layers.2.Block.forward.0"]
    assert set(answers["expanded"]["data"]) == {*root, *block.children}
    shown = answers["expanded"]["data"]["Module.layers.2.mlp.MLP.forward.0"]
    assert shown["precisionIndex"] == nodes[_MLP].index
    info = answers["getNodeInfo"]["data"]
    assert set(info) == {"npu", "bench"}
    assert set(info["npu"]["output_data"]) == set(nodes[_MLP].outputs())
    assert info["npu"]["stack_info"]
    listed = next(iter(answers["filter"].values()))["data"]
    names = [one if isinstance(one, str) else one["name"] for one in listed]
    if leaves is not None:
        assert set(leaves) <= set(names)
    else:
        red = {name for name, node in nodes.items() if (node.index or 0) >= 0.8 and not node.children}
        assert red
        assert red == {name for name in names if not nodes[name].children}


@pytest.mark.parametrize("version", ["8.1.1", "26.2.0"])
@pytest.mark.parametrize("compares", [False, True])
def test_overflow_levels_are_those_of_the_published_builders(
    tmp_path: Path, recorded: Recorded, version: str, compares: bool
) -> None:
    edited = tmp_path / "edited" / "rank0"
    shutil.copytree(recorded("good-statistics") / "rank", edited)
    content = json.loads((edited / "dump.json").read_text())
    overflow(content["data"])
    (edited / "dump.json").write_text(json.dumps(content))
    reference = None
    if compares:
        reference = tmp_path / "reference"
        shutil.copytree(recorded("good-statistics") / "rank", reference / "rank0")
    sides = edited.parent, reference
    found = [
        {
            (graph.source, name): node.overflow
            for graph in read_graph_file(made(version, tmp_path / made.__name__, *sides, "-oc")).graphs
            for name, node in graph.nodes.items()
            if node.overflow is not None
        }
        for made in (ours, published)
    ]
    assert {"medium", "high", "critical"} <= set(found[1].values())
    assert found[0] == found[1]


def overflow(data: dict[str, Any]) -> None:
    """NaN and infinities in arguments, in results, in both; a result that is too large; memory that nobody wrote."""
    nan, inf = float("nan"), float("inf")
    calls = "Functional.gelu.0.forward", "Functional.linear.3.forward", "Functional.layer_norm.2.forward"
    data[calls[0]]["output"][0]["Max"] = nan
    data[calls[1]]["input_args"][0]["Max"] = inf
    data[calls[1]]["output"][0]["Mean"] = nan
    data[calls[2]]["input_args"][0]["Min"] = -inf
    data["Functional.linear.8.forward"]["output"][0]["Norm"] *= 1e8
    data["Functional.gelu.1.backward"]["output"][0]["Min"] = -inf
    module = data["Module.layers.2.mlp.MLP.forward.0"]
    module["input_args"][0]["Norm"] = 0.0
    module["parameters"] = {"weight": {**module["output"][0], "Max": nan}}
    data["Module.layers.1.mlp.MLP.forward.0"]["output"][0]["Norm"] = nan


@pytest.mark.parametrize("version", ["8.1.1", "26.2.0"])
def test_we_read_graph_files_of_the_published_builders(tmp_path: Path, recorded: Recorded, version: str) -> None:
    sides = recorded("bad-statistics"), recorded("good-statistics")
    theirs = read_graph_file(published(version, tmp_path / "theirs", *sides))
    mine = read_graph_file(ours(version, tmp_path / "ours", *sides))
    assert (theirs.is_comparison, theirs.task, theirs.micro_steps) == (True, "summary", 1)
    for left, right in zip(mine.graphs, theirs.graphs, strict=True):
        assert set(left.nodes) == set(right.nodes)
        for name, node in right.nodes.items():
            other = left.nodes[name]
            assert (node.parent, node.children, node.link, node.index) == (
                other.parent,
                other.children,
                other.link,
                other.index,
            )
            assert set(node.inputs()) == set(other.inputs())
