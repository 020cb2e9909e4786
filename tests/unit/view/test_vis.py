from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import raising
from support.protocol_answers import all_misfits
from unit.diagnose.real_pairs import Training, record_training
from unit.view.pages import opened, row

from msprobe import cli
from msprobe.errors import InvalidInputError, PathError
from msprobe.graph.graph_files import read_graph_file
from msprobe.view.columns import UNEXPLAINED
from msprobe.view.opening import open_source
from msprobe.view.vis import GraphFiles


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two real runs without digests: graph files have none. The tanh of one gives one and a half of what it should."""
    folder = tmp_path_factory.mktemp("runs")
    one = record_training(folder / "candidate", lambda: training(1.5))
    return one, record_training(folder / "reference", lambda: training(1.0))


class Block(torch.nn.Module):
    """``fc``, ``tanh``, and what it is given is added."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.fc(x)) * self.factor


def training(factor: float) -> Training:
    """Two blocks; the factor is that of the first."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(Block(factor), Block(1.0))

    def step(number: int) -> None:
        torch.nn.functional.mse_loss(model(torch.randn(4, 8)), torch.zeros(4, 8)).backward()

    return model, step


@pytest.fixture(scope="module")
def files(runs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Their graphs, in all forms."""
    folder = tmp_path_factory.mktemp("graphs")
    sides = {"npu_path": str(runs[0] / "step0" / "rank"), "bench_path": str(runs[1] / "step0" / "rank")}
    (folder / "pair.json").write_text(json.dumps(sides))
    (folder / "one.json").write_text(json.dumps({"npu_path": sides["npu_path"]}))
    assert cli.main(["-f", "pytorch", "graph", "-i", str(folder / "pair.json"), "-o", str(folder / "vis")]) == 0
    assert cli.main(["-f", "pytorch", "graph", "-i", str(folder / "one.json"), "-o", str(folder / "build")]) == 0
    words = ["-tp", str(runs[0]), "-gp", str(runs[1]), "-o", str(folder / "db")]
    assert cli.main(["graph_visualize", *words]) == 0
    return {name: next((folder / name).iterdir()) for name in ("vis", "build", "db")}


@pytest.mark.parametrize("form", ["vis", "db"])
def test_a_graph_file_shows_what_its_dumps_show(runs: tuple[Path, Path], files: dict[str, Path], form: str) -> None:
    with opened(*runs) as dumps:
        expected = dumps.place(0)
    source = open_source([files[form]])
    found = source.place(0)
    assert source.overview()["kind"] == "pair"
    assert source.overview()["verdict"] is None
    assert found["names"][found["first"]] == expected["names"][expected["first"]]
    for name in ("kinds", "sides", "status"):
        ours = dict(zip(expected["names"], expected[name], strict=True))
        theirs = dict(zip(found["names"], found[name], strict=True))
        for one in ours.keys() & theirs.keys():
            # What a graph file does not hold (gradients of parameters as records of their own) has no numbers there.
            if name != "status" or theirs[one]:
                assert theirs[one] == ours[one], (name, one)
    parents = {name: found["names"][above] for name, above in zip(found["names"], found["parents"], strict=True)}
    assert parents["Torch.tanh.0.forward"] == "Module.0.Block.forward.0"
    source.close()


def test_passes_and_micro_steps_follow_each_other_as_in_the_dump(tmp_path: Path) -> None:
    def build() -> Training:
        model, once = training(1.0)
        return model, lambda number: (once(number), once(number))

    run = record_training(tmp_path / "run", build)
    assert cli.main(["graph_visualize", "-tp", str(run), "-o", str(tmp_path / "db")]) == 0
    graph = open_source([next((tmp_path / "db").iterdir())])
    with opened(run) as dump:
        bands = [_bands(source.place(0)) for source in (dump, graph)]
    graph.close()
    assert bands[0] == bands[1] == [(0, 0), (1, 0), (0, 0), (0, 1), (1, 1)]


def _bands(place: dict[str, Any]) -> list[tuple[int, int]]:
    """Pass and micro-step of all calls in order of execution, each once for a run of them."""
    holding = set(place["parents"])
    rows = sorted((row for row in range(len(place["names"])) if row not in holding), key=place["orders"].__getitem__)
    found = [(place["phases"][row], place["micro"][row]) for row in rows]
    return [one for number, one in enumerate(found) if not number or one != found[number - 1]]


def test_values_of_a_graph_file_are_those_of_the_dump(runs: tuple[Path, Path], files: dict[str, Path]) -> None:
    with opened(*runs) as dumps:
        expected = dumps.node(0, row(dumps.place(0), "Torch.tanh.0.forward"))
    source = open_source([files["db"]])
    told = source.node(0, row(source.place(0), "Torch.tanh.0.forward"))
    assert [one["slot"] for one in told["tensors"]] == [one["slot"] for one in expected["tensors"]]
    for one, other in zip(told["tensors"], expected["tensors"], strict=True):
        for side in ("candidate", "reference"):
            assert one[side]["shape"] == other[side]["shape"]
            assert one[side]["norm"] == pytest.approx(other[side]["norm"], rel=1e-4)
    assert told["source"]["candidate"] == expected["source"]["candidate"]
    source.close()


def test_one_run_alone_can_be_shown(files: dict[str, Path]) -> None:
    source = open_source([files["build"]])
    assert source.overview()["kind"] == "single"
    assert all_misfits(lambda question, **values: getattr(source, question)(**values)) == []
    assert set(source.place(0)["status"]) == {0}
    source.close()


def test_all_graph_files_of_a_folder_are_shown_and_doubles_refused(files: dict[str, Path], tmp_path: Path) -> None:
    shutil.copy(files["vis"], tmp_path / "compare_step3_rank7_20260101000000.vis")
    shutil.copy(files["vis"], tmp_path / "compare_step3_rank10_20260101000000.vis")
    source = open_source([tmp_path])
    assert [(one["step"], one["rank"]) for one in source.overview()["places"]] == [(3, 7), (3, 10)]
    source.close()
    shutil.copy(files["vis"], tmp_path / "compare_step3_rank7_20260101000001.vis")
    with pytest.raises(InvalidInputError, match="both hold step 3, rank 7"):
        open_source([tmp_path])


def test_pairs_made_by_hand_stand_where_the_plugin_finds_them(files: dict[str, Path], tmp_path: Path) -> None:
    for form, name in (("vis", "graph.vis"), ("db", "graph.vis.db")):
        shutil.copy(files[form], tmp_path / name)
        source = open_source([tmp_path / name])
        assert isinstance(source, GraphFiles)
        answer = source.match(0, "Torch.tanh.0.forward", "Torch.tanh.1.forward", False)
        assert Path(answer["file"]).name == ("graph.vis.config" if form == "vis" else "graph_0_0.vis.config")
        place = source.place(0)
        assert place["twins"][str(row(place, "Torch.tanh.0.forward"))] == "Torch.tanh.1.forward"
        source.close()


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"NPU": 3}', b'{"NPU": {"node": {"a": 3}}}', b"\x00" * 100, b'{"node": []}']
)
def test_a_broken_graph_file_is_reported(tmp_path: Path, content: bytes) -> None:
    for name in ("x.vis", "x.vis.db"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInputError, match=r"x\.vis"):
            open_source([tmp_path / name])


def test_odd_values_in_a_graph_file_are_shown_as_far_as_they_go(tmp_path: Path) -> None:
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": "(2,)", "Max": "nan", "Min": "x", "Norm": None}
    names = ["DefaultModel", "Module.a.A.forward.0", "Torch.b.0.forward", "Torch.lost.0.forward"]
    nodes = {
        name: {"node_type": int(name.startswith("Torch")), "upnode": above, "subnodes": below, "output_data": data}
        for name, above, below, data in (
            (names[0], "None", [names[1], "not there"], {}),
            (names[1], names[0], [names[2], names[1]], {}),
            (names[2], names[1], [], {f"{names[2]}.output.0": leaf, "odd": {}}),
            (names[3], "nowhere", [], {}),
        )
    }
    (tmp_path / "build.vis").write_text(json.dumps({"root": "DefaultModel", "node": nodes}))
    source = open_source([tmp_path / "build.vis"])
    place = source.place(0)
    assert set(names[1:]) <= set(place["names"])
    tensor = source.node(0, place["names"].index(names[2]))["tensors"][0]["candidate"]
    assert (tensor["shape"], tensor["max"], tensor["min"]) == ([2], "nan", None)
    json.dumps(place, allow_nan=False)
    source.close()


def test_a_file_that_is_not_there_or_does_not_belong_is_reported(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(PathError, match="does not exist"):
        open_source([tmp_path / "no.vis"])
    with raising(InvalidInputError, "graph-file-is-both-sides"):
        open_source([files["vis"], files["vis"]])


def test_a_vis_file_shows_the_step_and_rank_of_its_name_and_no_other(files: dict[str, Path]) -> None:
    source = open_source([files["vis"]])
    assert [(one["step"], one["rank"]) for one in source.overview()["places"]] == [(None, None)]
    assert source.ranks(None)["places"] == [0]
    source.close()


@pytest.mark.parametrize("form", ["vis", "db"])
def test_what_rounding_explains_is_no_difference_of_a_graph_file(
    runs: tuple[Path, Path], tmp_path: Path, form: str
) -> None:
    noisy = tmp_path / "noisy"
    shutil.copytree(runs[1] / "step0", noisy / "step0")
    dump = noisy / "step0" / "rank" / "dump.json"
    content = json.loads(dump.read_text())
    disturb(content["data"])
    dump.write_text(json.dumps(content))
    sides = {"npu_path": str(noisy / "step0"), "bench_path": str(runs[1] / "step0")}
    (tmp_path / "pair.json").write_text(json.dumps(sides))
    words = {
        "vis": ["-f", "pytorch", "graph", "-i", str(tmp_path / "pair.json")],
        "db": ["graph_visualize", "-tp", sides["npu_path"], "-gp", sides["bench_path"]],
    }[form]
    assert cli.main([*words, "-o", str(tmp_path / "out")]) == 0
    source = open_source([tmp_path / "out"])
    place = source.place(0)
    assert place["first"] == -1
    assert UNEXPLAINED not in place["status"]
    # The index that the format asks for takes some of it for an error.
    (file,) = (tmp_path / "out").iterdir()
    if form == "vis":
        assert max(node.index or 0 for node in read_graph_file(file).graphs[0].nodes.values()) > 0
    source.close()


def disturb(value: Any) -> None:
    """Change statistics by as much as rounding does: by 1e-7 of the size of the tensor."""
    if isinstance(value, dict) and str(value.get("dtype")).startswith("torch.float"):
        elements = math.prod(value["shape"])
        size = value["Norm"] / elements**0.5
        for name in ("Max", "Min", "Mean"):
            value[name] += 1e-7 * size
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            disturb(item)
