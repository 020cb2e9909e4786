"""``msprobe graph`` and ``msprobe graph_visualize``: what they write, and what they say of bad input."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions
from support.command_line import call
from support.graph_models import Renamed, compare_file, nodes_of, recording, scaled

from msprobe.graph.graph_files import read_graph_file

Recorded = Callable[[str], Path]
_CHANGES: dict[str, dict[str, Any]] = {
    "good": {},
    "bad": {"change": scaled},
    "renamed": {"block": {"name": "ffn", "mlp": Renamed}},
    "extra": {"change": lambda model: setattr(model.layers[0], "extra", True)},
    "micro": {"micro": 3},
    "steps": {"steps": 2},
    "good-md5": {"summary_mode": "md5"},
    "bad-md5": {"summary_mode": "md5", "change": scaled},
    "good-tensor": {"task": "tensor"},
    "bad-tensor": {"task": "tensor", "change": scaled},
    "good-structure": {"task": "structure"},
    "bad-structure": {"task": "structure", "change": scaled},
    "calls": {"level": "L1"},
}
_RENAMED_MLP = "Block:\n  ffn: mlp\n"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    place = tmp_path_factory.mktemp("recorded")

    def folder(name: str) -> Path:
        if not (place / name).exists():
            recording(place / name, **_CHANGES[name])
        return place / name / "step0"

    return folder


def graph(place: Path, candidate: Path, reference: Path | None = None, *flags: str) -> Path:
    """The only file that ``msprobe graph`` writes."""
    file = compare_file(place, candidate, reference)
    done = call("-f", "pytorch", "graph", "-i", file, "-o", place / "out", *flags)
    assert done.returncode == 0, done.stderr
    (found,) = (place / "out").iterdir()
    return found


def unmatched(nodes: dict[str, Any]) -> list[str]:
    return [name for name, node in nodes.items() if not node["matched_node_link"]]


def test_one_rank_alone_is_built(tmp_path: Path, recorded: Recorded) -> None:
    file = graph(tmp_path, recorded("good") / "rank")
    assert file.name.startswith("build_2")
    assert file.name.endswith(".vis")
    assert file.stat().st_mode & 0o777 == 0o640
    content = json.loads(file.read_text())
    assert list(content) == ["root", "dump_data_dir", "node", "MicroSteps", "OverflowCheck"]
    assert content["MicroSteps"] == 1
    assert content["OverflowCheck"] is False
    groups = [name for name, node in content["node"].items() if node["node_type"] == 9]
    assert groups == ["Apis_Between_Modules.0"]
    root = content["node"][content["root"]]
    assert root["upnode"] == "None"
    place = root["subnodes"].index("Apis_Between_Modules.0")
    assert ".forward." in root["subnodes"][place - 1]
    assert ".backward." in root["subnodes"][place + 1]


def test_two_runs_compared_name_the_extra_call_and_rate_what_differs(tmp_path: Path, recorded: Recorded) -> None:
    for flags in ((), ("-f",), ("--strict",), ("-lm",)):
        place = tmp_path / "".join(flags)
        file = graph(place, recorded("bad"), recorded("good"), *flags)
        assert file.name.startswith("compare_rank_2")
        content = json.loads(file.read_text())
        assert content["task"] == "summary"
        nodes = content["NPU"]["node"]
        assert unmatched(nodes) == ["Tensor.__mul__.0.forward", "Tensor.__mul__.0.backward"]
        assert unmatched(content["Bench"]["node"]) == []
        index = {name: node["data"].get("precision_index") for name, node in nodes.items()}
        assert index["Module.layers.2.mlp.fc1.Linear.forward.0"] == 0
        assert index["Module.layers.2.mlp.MLP.forward.0"] == pytest.approx(0.5, abs=1e-4)
        assert index["Tensor.__mul__.0.forward"] is None
        row = nodes["Module.layers.2.mlp.MLP.forward.0"]["output_data"]["Module.layers.2.mlp.MLP.forward.0.output.0"]
        assert row["NormRelativeErr"].startswith(("50.0", "49.9"))
        assert nodes["Module.layers.2.mlp.MLP.forward.0"]["matched_node_link"] == [
            "DefaultModel",
            "Module.layers.2.Block.forward.0",
            "Module.layers.2.mlp.MLP.forward.0",
        ]


def test_no_index_is_as_high_as_the_viewer_s_filters_miss(tmp_path: Path, recorded: Recorded) -> None:
    nodes = nodes_of(graph(tmp_path / "a", recorded("bad"), recorded("good")), "NPU")
    highest = max(node["data"].get("precision_index") or 0 for node in nodes.values())
    assert highest == 0.999999
    published = graph(tmp_path / "b", recorded("bad"), recorded("good"), "--strict-reference-values")
    nodes = nodes_of(published, "NPU")
    assert max(node["data"].get("precision_index") or 0 for node in nodes.values()) == 1


def test_a_renamed_module_is_found_and_only_strict_loses_it(tmp_path: Path, recorded: Recorded) -> None:
    candidate, reference = recorded("renamed"), recorded("good")
    assert unmatched(nodes_of(graph(tmp_path / "aligned", candidate, reference), "NPU")) == []
    strict = unmatched(nodes_of(graph(tmp_path / "strict", candidate, reference, "--strict"), "NPU"))
    # In each block: the module, two layers and three calls, forward and backward, and two records of gradients.
    assert len(strict) == 4 * 14
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(_RENAMED_MLP)
    mapped = graph(tmp_path / "mapped", candidate, reference, "-lm", str(mapping))
    assert unmatched(nodes_of(mapped, "NPU")) == []


def test_one_extra_call_leaves_one_node_without_partner(tmp_path: Path, recorded: Recorded) -> None:
    nodes = nodes_of(graph(tmp_path / "aligned", recorded("extra"), recorded("good")), "NPU")
    assert len(unmatched(nodes)) == 1
    assert unmatched(nodes)[0].startswith("Functional.linear.")
    strict = nodes_of(graph(tmp_path / "strict", recorded("extra"), recorded("good"), "--strict"), "NPU")
    assert len(unmatched(strict)) > 10


def test_digests_have_two_colours_and_a_result(tmp_path: Path, recorded: Recorded) -> None:
    content = json.loads(graph(tmp_path, recorded("bad-md5"), recorded("good-md5")).read_text())
    assert content["task"] == "md5"
    assert list(content["Colors"]) == ["#FFFCF3", "#FF704D", "#C7C7C7"]
    nodes = content["NPU"]["node"]
    assert nodes["Module.layers.2.mlp.MLP.forward.0"]["data"] == {"precision_index": 0, "Result": "Different"}
    assert nodes["Module.layers.1.mlp.MLP.forward.0"]["data"] == {"precision_index": 0.999999, "Result": "pass"}


def test_tensors_have_six_columns_and_blame_the_node_and_not_those_before_it(
    tmp_path: Path, recorded: Recorded
) -> None:
    content = json.loads(graph(tmp_path, recorded("bad-tensor"), recorded("good-tensor")).read_text())
    nodes = content["NPU"]["node"]
    row = nodes["Functional.linear.10.forward"]["output_data"]["Functional.linear.10.forward.output.0"]
    columns = "Cosine EucDist MaxAbsErr MaxRelativeErr".split()
    assert list(row)[-6:] == [*columns, "One Thousandth Err Ratio", "Five Thousandths Err Ratio"]
    assert row["data_name"] == "Functional.linear.10.forward.output.0.pt"
    assert nodes["Module.layers.2.mlp.MLP.forward.0"]["data"]["precision_index"] == 0.999999
    assert nodes["Functional.linear.10.forward"]["data"]["precision_index"] == 0
    assert nodes["Functional.gelu.2.forward"]["data"]["precision_index"] == 0


def test_structures_have_no_index_colours(tmp_path: Path, recorded: Recorded) -> None:
    content = json.loads(graph(tmp_path, recorded("bad-structure"), recorded("good-structure")).read_text())
    assert content["task"] == "structure"
    assert list(content["Colors"]) == ["#C7C7C7"]
    assert unmatched(content["NPU"]["node"]) == ["Tensor.__mul__.0.forward", "Tensor.__mul__.0.backward"]


def test_three_micro_batches_are_numbered_at_the_top(tmp_path: Path, recorded: Recorded) -> None:
    content = json.loads(graph(tmp_path, recorded("micro")).read_text())
    assert content["MicroSteps"] == 3
    found = {node["micro_step_id"] for node in content["node"].values() if node["upnode"] == "DefaultModel"}
    assert found == {0, 1, 2}
    assert all("micro_step_id" not in node for node in content["node"].values() if node["upnode"] != "DefaultModel")


def test_two_steps_of_a_rank_without_number_are_two_files(tmp_path: Path, recorded: Recorded) -> None:
    folder = recorded("steps").parent
    done = call("-f", "pytorch", "graph", "-i", compare_file(tmp_path, folder), "-o", tmp_path / "out")
    assert done.returncode == 0
    names = sorted(file.name.rpartition("_")[0] for file in (tmp_path / "out").iterdir())
    assert names == ["build_step0_rank", "build_step1_rank"]


def test_overflow_is_marked_only_when_asked_for(tmp_path: Path, recorded: Recorded) -> None:
    edited = tmp_path / "edited" / "rank0"
    shutil.copytree(recorded("good") / "rank", edited)
    content = json.loads((edited / "dump.json").read_text())
    data, nan, inf = content["data"], float("nan"), float("inf")
    data["Functional.gelu.0.forward"]["output"][0]["Max"] = nan
    data["Functional.linear.3.forward"]["input_args"][0]["Max"] = inf
    data["Functional.linear.3.forward"]["output"][0]["Mean"] = nan
    data["Functional.layer_norm.2.forward"]["input_args"][0]["Min"] = -inf
    data["Functional.linear.8.forward"]["output"][0]["Norm"] *= 1e8
    (edited / "dump.json").write_text(json.dumps(content))
    levels = {
        name: node["data"]["overflow_level"]
        for name, node in nodes_of(graph(tmp_path / "a", edited.parent, None, "-oc")).items()
        if "overflow_level" in node["data"] and name.startswith("Functional")
    }
    assert levels.pop("Functional.gelu.0.forward") == "critical"
    assert levels.pop("Functional.linear.3.forward") == "high"
    assert levels.pop("Functional.layer_norm.2.forward") == "medium"
    assert levels.pop("Functional.linear.8.forward") == "high"
    without = nodes_of(graph(tmp_path / "b", edited.parent))
    assert not any("overflow_level" in node["data"] for node in without.values())


def test_the_newer_form_writes_one_database_that_is_read_back(tmp_path: Path, recorded: Recorded) -> None:
    done = call("graph_visualize", "-tp", recorded("bad"), "-gp", recorded("good"), "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("compare_")
    assert file.name.endswith(".vis.db")
    assert file.stat().st_mode & 0o777 == 0o640
    read = read_graph_file(file)
    assert read.is_comparison
    assert [(graph.source, graph.step, graph.rank) for graph in read.graphs] == [("NPU", 0, 0), ("Bench", 0, 0)]
    nodes = read.graphs[0].nodes
    assert nodes["Module.layers.2.mlp.MLP.forward.0"].index == 1
    assert nodes["Module.layers.2.mlp.fc2.Linear.forward.0"].index == 0
    assert [name for name, node in nodes.items() if node.partner is None] == [
        "Tensor.__mul__.0.forward",
        "Tensor.__mul__.0.backward",
    ]
    row = nodes["Module.layers.2.mlp.MLP.forward.0"].outputs()["Module.layers.2.mlp.MLP.forward.0.output.0"]
    assert row["Result"] == "error"
    assert nodes["DefaultModel"].parent is None
    database = sqlite3.connect(file)
    roots = database.execute("SELECT node_name FROM tb_nodes WHERE up_node = '' AND data_source = 'NPU'").fetchall()
    assert roots == [("DefaultModel",)]
    orphans = "SELECT count(*) FROM tb_nodes WHERE stack_id NOT IN (SELECT id FROM tb_stack)"
    assert database.execute(orphans).fetchone() == (0,)


def test_a_vis_file_is_read_back(tmp_path: Path, recorded: Recorded) -> None:
    read = read_graph_file(graph(tmp_path, recorded("bad"), recorded("good")))
    assert (read.task, read.micro_steps, read.is_comparison) == ("summary", 1, True)
    node = read.graphs[0].nodes["Module.layers.2.mlp.MLP.forward.0"]
    assert node.partner == "Module.layers.2.mlp.MLP.forward.0"
    assert node.children[0] == "Module.layers.2.mlp.fc1.Linear.forward.0"
    assert len(read.graphs[0].nodes["Module.layers.2.n1.LayerNorm.forward.0"].stack) == 1


def test_calls_without_modules_are_a_flat_graph_with_a_notice(tmp_path: Path, recorded: Recorded) -> None:
    done = call("graph_visualize", "-tp", recorded("calls"), "-o", tmp_path)
    assert done.returncode == 0
    assert "level L0 or mix" in done.stdout


def wrong(tmp_path: Path, content: str) -> str:
    file = tmp_path / "compare.json"
    file.write_text(content)
    done = call("-f", "pytorch", "graph", "-i", file, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
    return done.stderr


def test_a_wrong_compare_file_is_reported_in_one_sentence(tmp_path: Path) -> None:
    wanted = "an object with npu_path"
    assert mentions(wrong(tmp_path, "[]"), "must-be", what=wanted, found="nothing")
    assert "line 1" in wrong(tmp_path, "{")
    assert 'field "npu_path": is missing' in wrong(tmp_path, '{"npu_pth": "a"}')
    said = wrong(tmp_path, '{"npu_path": "", "bench_path": 3}')
    assert mentions(said, "is-empty-give-dump") == mentions(said, "must-be", what="a path", found=3) == 1
    done = call("-f", "pytorch", "graph", "-i", tmp_path / "none.json", "-o", tmp_path)
    assert "none.json" in done.stderr
    assert done.returncode == 2


def test_folders_of_no_dump_are_reported_with_what_they_hold(tmp_path: Path, recorded: Recorded) -> None:
    def said(candidate: Path, reference: Path | None = None) -> str:
        fields = {"npu_path": str(candidate), "bench_path": None if reference is None else str(reference)}
        return wrong(tmp_path, json.dumps(fields))

    assert "npu_path: folder" in said(tmp_path / "nowhere")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert f"npu_path: '{empty}' is empty" in said(empty)
    (empty / "foo").mkdir()
    assert "found: foo" in said(empty)
    (empty / "rank0").mkdir()
    (empty / "step0").mkdir()
    assert mentions(said(empty), "ranks-beside-steps", listed="rank0, step0")
    assert mentions(
        said(recorded("good").parent, recorded("good")),
        "graph-folders-of-two-kinds",
        kind="steps",
        reference_field="bench_path",
        reference_kind="ranks",
    )
    broken = tmp_path / "broken" / "rank0"
    # A recording that ended a moment ago may still remove its journal.
    shutil.copytree(recorded("good") / "rank", broken, ignore=shutil.ignore_patterns("*.journal"))
    (broken / "construct.json").write_text("[]")
    assert "construct.json" in said(broken.parent)
    (broken / "construct.json").unlink()
    assert "has no construct.json" in said(broken.parent)


def test_a_damaged_dump_leaves_nothing_behind(tmp_path: Path, recorded: Recorded) -> None:
    for rank in ("rank0", "rank1"):
        shutil.copytree(recorded("good") / "rank", tmp_path / "dump" / rank)
    dump = tmp_path / "dump" / "rank1" / "dump.json"
    dump.write_text(dump.read_text()[:5000])
    done = call("graph_visualize", "-tp", tmp_path / "dump", "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "rank1" in done.stderr
    assert not (tmp_path / "out").exists()


def test_other_ranks_on_the_sides_are_reported_and_the_common_ones_compared(tmp_path: Path, recorded: Recorded) -> None:
    for side, ranks in (("a", (0, 2, 10)), ("b", (0, 10))):
        for rank in ranks:
            shutil.copytree(recorded("good") / "rank", tmp_path / side / f"rank{rank}")
    (tmp_path / "a" / "notes.txt").write_text("not of a dump")
    file = compare_file(tmp_path, tmp_path / "a", tmp_path / "b")
    done = call("-f", "pytorch", "graph", "-i", file, "-o", tmp_path / "out")
    assert done.returncode == 2
    assert done.stdout.count("Not compared: rank 2 (only in npu_path).") == 1
    names = sorted(file.name.rpartition("_")[0] for file in (tmp_path / "out").glob("*.vis"))
    assert names == ["compare_rank0", "compare_rank10"]
    shutil.rmtree(tmp_path / "b" / "rank0")
    shutil.rmtree(tmp_path / "b" / "rank10")
    shutil.copytree(recorded("good") / "rank", tmp_path / "b" / "rank7")
    shutil.rmtree(tmp_path / "out")
    assert mentions(wrong(tmp_path, file.read_text()), "no-common-step-and-rank")


def test_dumps_of_other_kinds_are_refused(tmp_path: Path, recorded: Recorded) -> None:
    def said(candidate: str, reference: str) -> str:
        fields = {"npu_path": str(recorded(candidate)), "bench_path": str(recorded(reference))}
        return wrong(tmp_path, json.dumps(fields))

    assert mentions(said("good-tensor", "good"), "graph-tasks-differ", kind="tensor", reference_kind="statistics")
    assert mentions(
        said("good-md5", "good"), "graph-tasks-differ", kind="statistics with md5", reference_kind="statistics"
    )


def test_a_wrong_mapping_stops(tmp_path: Path, recorded: Recorded) -> None:
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text("- a\n")
    flags = ("-tp", recorded("good"), "-gp", recorded("good"), "-o", tmp_path / "out", "-lm")
    assert call("graph_visualize", *flags, mapping).returncode == 2
    assert call("graph_visualize", *flags, tmp_path / "none.yaml").returncode == 2
    assert not (tmp_path / "out").exists()


def test_fields_that_mean_nothing_to_a_graph_are_named(tmp_path: Path, recorded: Recorded) -> None:
    file = compare_file(tmp_path, recorded("good"), is_print_compare_log=True, fuzzy=1, parallel_merge={"tp": 2})
    done = call("-f", "pytorch", "graph", "-i", file, "-o", tmp_path / "out")
    assert done.returncode == 0
    assert mentions(done.stdout, "setting-left-out", field='field "fuzzy"')
    assert mentions(done.stdout, "parallel-merge-wrong")
    done = call("graph_visualize", "-tp", recorded("good"), "-gp", "", "-o", tmp_path / "no")
    assert done.returncode == 2
    assert mentions(done.stderr, "graph-path-empty", field="--golden_path")


def test_wrong_sizes_of_a_layout_are_named_all_at_once(tmp_path: Path, recorded: Recorded) -> None:
    def said(*words: str, status: int = 2) -> str:
        done = call("graph_visualize", "-tp", recorded("good"), "-o", tmp_path / "out", *words)
        assert done.returncode == status
        return done.stderr

    assert mentions(said("--rank_size", "2", "--tp", "2", status=2), "rank-size-needs-more", options="--pp", verb="is")
    assert mentions(said("--tp", "2", status=2), "needs-rank-size", given="--tp")
    sizes = said("--rank_size", "2", "--tp", "3", "--pp", "1")
    assert mentions(sizes, "larger-than-rank-size", name="tp", size=3, total=2)
    both = said("--rank_size", "2", "--tp", "0", "--pp", "0")
    assert mentions(both, "layout-number-wrong", name="tp", value=0)
    assert mentions(both, "layout-number-wrong", name="pp", value=0)
    assert mentions(said("--rank_size", "3", "--tp", "1", "--pp", "1"), "rank-size-wrong", rank_size=3, ranks=1)
    assert mentions(
        said("--rank_size", "3", "3", "--tp", "1", "--pp", "1", status=2), "rank-size-values", word="one value"
    )
    assert "json" in said("--file_type", "json", "-gp", str(recorded("good")), status=2)
