from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions
from support.command_line import call

from msprobe.environment.rl_logs import read_slime, read_verl
from msprobe.errors import InvalidInputError

BENCH: dict[str, Any] = {
    "actor_rollout_ref": {
        "actor": {"clip_ratio": 0.3, "m": 5, "load_weight": True, "profiler": {"on": 1}},
        "empty": {},
    },
    "data": {"files": ["a", "b"], "shuffle": False},
    "ray_init": {"cpus": 8},
}
NPU: dict[str, Any] = {
    "actor_rollout_ref": {
        "actor": {"clip_ratio": 0.2, "n": 5, "load_weight": True, "profiler": {"on": 2}},
        "empty": {},
    },
    "data": {"files": ["a", "b"], "shuffle": True},
    "ray_init": {"cpus": 16},
}


def log(path: Path, *trees: Any, prefix: str = "(TaskRunner pid=123) ") -> Path:
    lines = ["started {not a dict"]
    for tree in trees:
        text = tree if isinstance(tree, str) else repr(tree).replace(", 'data'", ",\n 'data'")
        lines += [prefix + line for line in text.splitlines()]
    path.write_text("\n".join([*lines, "step 1 loss 0.5"]))
    return path


def rows(path: Path) -> list[list[str]]:
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    return list(csv.reader(path.read_text("utf-8-sig").splitlines()))


def test_two_logs_of_verl(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = call("config_check", "-vc", log(tmp_path / "n.log", BENCH, NPU), log(tmp_path / "b.txt", BENCH), "-o", out)
    assert done.returncode == 1
    assert mentions(done.stdout, "configuration-printed-more-than-once", count=2)
    found = rows(out / "hyper_params_compare.csv")
    assert found[0] == ["超参名称", "NPU生效值", "bench生效值", "是否一致"]
    assert ["actor_rollout_ref/actor/clip_ratio", "0.2", "0.3", "否"] in found
    assert ["actor_rollout_ref/actor/m", "NA", "5", "否"] in found
    assert ["actor_rollout_ref/actor/n", "5", "NA", "否"] in found
    assert ["data/files", "['a', 'b']", "['a', 'b']", "是"] in found
    assert ["actor_rollout_ref/empty", "{}", "{}", "是"] in found
    assert not [row for row in found if "profiler/" in row[0] or "ray_" in row[0]]
    assert [row[0] for row in found[1:]] == sorted(row[0] for row in found[1:])
    assert json.loads((out / "NPU_config.json").read_text()) == NPU
    assert call("config_check", "-vc", *[log(tmp_path / "b.txt", json.dumps(BENCH))] * 2, "-o", out).returncode == 0


def test_a_log_of_verl_is_held_against_wanted_values(tmp_path: Path) -> None:
    out = tmp_path / "out"
    target = log(tmp_path / "t.log", NPU)
    assert call("config_check", "-vv", target, "-o", out).returncode == 1
    found = rows(out / "hyper_params_verify.csv")
    assert found[0] == ["关键参数名称", "bench生效值", "target生效值", "是否一致"]
    assert len(found) == 18
    assert ["data/shuffle", "False", "True", "否"] in found
    assert ["actor_rollout_ref/actor/load_weight", "True", "True", "是"] in found
    (tmp_path / "w.yaml").write_text("data:\n  shuffle: true\n")
    assert call("config_check", "-vv", tmp_path / "w.yaml", target, "-o", out).returncode == 0
    assert rows(out / "hyper_params_verify.csv")[1:] == [["data/shuffle", "True", "True", "是"]]
    for files in ((target, tmp_path / "w.yaml"), (target, target, target), (tmp_path / "w.yaml",)):
        done = call("config_check", "-vv", *files, "-o", out)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_two_logs_of_slime(tmp_path: Path) -> None:
    def slime(path: Path, lr: str) -> Path:
        path.write_text(
            "(x pid=1) ------------------------ arguments ------------------------\n"
            f"(x pid=1)   lr .............................. {lr}\n"
            "(x pid=1)   bf16 ............................ True\n"
            "(x pid=1)   profile_step_start .............. 10\n"
            "(x pid=1) -------------------- end of arguments ---------------------\n"
        )
        return path

    out = tmp_path / "out"
    one, two = slime(tmp_path / "a.log", "1e-5"), slime(tmp_path / "b.log", "2e-5")
    assert read_slime(str(one))[0] == {"lr": 1e-5, "bf16": True, "profile_step_start": 10}
    assert call("config_check", "-sc", one, two, "-o", out).returncode == 1
    assert rows(out / "hyper_params_compare.csv")[1:] == [
        ["bf16", "True", "True", "是"],
        ["lr", "1e-05", "2e-05", "否"],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{'actor_rollout_ref': {'a': 1}",
        "{'actor_rollout_ref': __import__('os').system('touch evil')}",
        "{'actor_rollout_ref': " + "[" * 5000 + "]" * 5000 + "}",
        "nothing",
        "{'actor_rollout_ref': object at 0x1}",
    ],
)
def test_a_log_is_data(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInputError, match=r"x\.log"):
        read_verl(str(log(tmp_path / "x.log", text)))
    assert not (tmp_path / "evil").exists()
