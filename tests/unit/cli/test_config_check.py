from __future__ import annotations

import csv
import json
import stat
from pathlib import Path

import pytest
import torch
from support.coded_texts import mentions
from support.command_line import call

from msprobe.messages import said

MODEL = {"l1.weight": torch.randn(8, 16), "output_layer.weight": torch.randn(32, 8), "zero": torch.zeros(3)}


def save(path: Path, model: object) -> Path:
    torch.save(model, path)
    return path


@pytest.mark.parametrize("before", [(), ("-f", "pytorch"), ("-f", "mindspore")])
def test_both_forms_write_the_json_of_8_1_1(tmp_path: Path, before: tuple[str, ...]) -> None:
    first = save(tmp_path / "a.pt", MODEL)
    other = {**MODEL, "output_layer.weight": torch.randn(40, 9), "zero": torch.ones(3)}
    second = save(tmp_path / "b.pt", other)
    done = call(*before, "config_check", "-c", first, second, "-o", tmp_path / "new/o.json")
    assert done.returncode == 1
    text = (tmp_path / "new/o.json").read_text()
    assert text.startswith('{\n    "l1.weight": {\n        "l2": 0.0,')
    assert json.loads(text) == {
        "l1.weight": {"l2": 0.0, "cos": 1.0, "numel": 128, "shape": [8, 16]},
        "output_layer.weight": {"l2": None, "cos": None, "numel": [256, 360], "shape": [[32, 8], [40, 9]]},
        "zero": {"l2": 3**0.5, "cos": None, "numel": 3, "shape": [3]},
    }
    assert stat.S_IMODE((tmp_path / "new/o.json").stat().st_mode) == 0o640
    summary = json.loads((tmp_path / "new/o_summary.json").read_text())
    assert summary["counts"] == {"other shape": 1, "changed": 1, "equal": 1}
    assert [row["name"] for row in summary["worst"]] == ["output_layer.weight", "zero"]
    table = list(csv.DictReader((tmp_path / "new/o_table.csv").read_text("utf-8-sig").splitlines()))
    assert [row["kind"] for row in table] == ["other shape", "changed", "equal"]
    assert "They differ: 1 other shape, 1 changed, 1 equal." in done.stdout


def test_the_default_place_and_equal_checkpoints(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", MODEL)
    done = call("config_check", "-c", path, path, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert {one.name for one in tmp_path.iterdir()} == {
        "a.pt", "ckpt_similarity.json", "ckpt_similarity_summary.json", "ckpt_similarity_table.csv",
    }  # fmt: skip


def test_more_measures_and_sections_when_asked_for(tmp_path: Path) -> None:
    state = {
        "model": MODEL,
        "optimizer": {"state": {0: {"exp_avg": torch.ones(8, 16)}}, "param_groups": [{"params": [0, 1, 2]}]},
    }
    path = save(tmp_path / "a.pt", state)
    done = call("config_check", "-c", path, path, "-o", tmp_path / "o.json", "--metrics", "full", "--with-optim")
    assert done.returncode == 0
    found = json.loads((tmp_path / "o.json").read_text())
    assert found["optimizer: l1.weight.exp_avg"]["exact"] is True
    assert found["zero"] == {
        "l2": 0.0, "cos": 1.0, "numel": 3, "shape": [3], "kind": "equal", "max_abs": 0.0, "max_rel": 0.0, "rel_l2": 0.0,
        "dtype": ["float32", "float32"], "ulp_max": None, "exact": True, "nan_count": [0, 0], "inf_count": [0, 0],
    }  # fmt: skip


def test_bad_input_is_one_sentence_each_and_status_2(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pt", MODEL)
    (tmp_path / "there.json").write_text("mine")
    done = call("config_check", "-c", path, path, "-o", tmp_path / "there.json")
    assert done.returncode == 2
    assert "already exists" in done.stderr
    assert (tmp_path / "there.json").read_text() == "mine"
    done = call("config_check", "-c", tmp_path / "x", tmp_path / "y", "-o", tmp_path / "o.json")
    assert done.returncode == 2
    assert mentions(done.stderr, "checkpoint-missing", path=tmp_path / "x")
    assert mentions(done.stderr, "checkpoint-missing", path=tmp_path / "y")
    assert not (tmp_path / "o.json").exists()
    assert call("config_check", "-c", path, "-o", tmp_path / "o.json").returncode == 2
    assert call("config_check").returncode == 2
    both = call("config_check", "-c", path, path, "-vv", path)
    assert both.returncode == 2
    assert call("config_check", "-c", path, path, "--with-optim", "--weights-only").returncode == 2


def test_options_of_another_operation_are_refused(tmp_path: Path) -> None:
    first = save(tmp_path / "a.pt", MODEL)
    done = call("config_check", "-c", first, first, "--tolerance", "1", "--env-all", "-o", tmp_path / "o.json")
    assert done.returncode == 2
    assert mentions(done.stderr, "option-of-operation", option="--env-all", operation="-d")
    assert mentions(done.stderr, "option-of-operation", option="--tolerance", operation=said("packs-operation"))
    assert not (tmp_path / "o.json").exists()
    done = call("config_check", "-d", "--metrics", "full", "-o", tmp_path / "o.zip")
    assert (done.returncode, (tmp_path / "o.zip").exists()) == (2, False)
    assert mentions(done.stderr, "option-of-operation", option="--metrics", operation=said("checkpoints-operation"))
