from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path

import pytest
from support.coded_texts import mentions
from support.command_line import call
from support.packs import PUBLISHED, VERSIONS, write_pack
from support.sheets import Cell, read_workbook

SCRIPT = "LR=1e-5\ntorchrun --nproc_per_node 8 train.py --lr $LR --seed {seed} --{dtype}\n"
STATIC = "hyperparameters/hyperparameters_static.json"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for number, (seed, dtype, batch) in enumerate([(1234, "bf16", "batch: 4"), (42, "fp16", "bs: 8")], 1):
        (tmp_path / f"train{number}.sh").write_text(SCRIPT.format(seed=seed, dtype=dtype))
        (tmp_path / f"a{number}.yaml").write_text(f"{batch}\n")
    return tmp_path


def rows(path: Path, sheet: str) -> list[tuple[Cell, ...]]:
    return [tuple(row.values()) for row in read_workbook(path / "result.xlsx")[sheet].rows]


def levels(path: Path) -> dict[Cell, Cell]:
    return {row[0]: row[1] for row in rows(path, "summary")}


def test_a_pack_of_files_and_a_pack_alone(files: Path) -> None:
    """A1, A2."""
    done = call("config_check", "-d", "train1.sh", "a1.yaml", "-o", "new/s1.zip", cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    with zipfile.ZipFile(files / "new/s1.zip") as archive:
        assert archive.namelist() == ["env", "pip", STATIC]
        assert json.loads(archive.read(STATIC))["lr"] == "1e-5"
    assert call("-f", "mindspore", "config_check", "-d", cwd=files).returncode == 0
    path = files / "config_check_pack.zip"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["env", "pip"]
    assert call("config_check", "-d", "train2.sh", cwd=files).returncode == 0
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["env", "pip", STATIC]


def test_a_pack_agrees_with_itself(files: Path) -> None:
    """A3."""
    call("config_check", "-d", "train1.sh", "a1.yaml", "-o", "s.zip", cwd=files)
    done = call("config_check", "-c", "s.zip", "s.zip", cwd=files)
    assert (done.returncode, done.stderr) == (0, "")
    folder = files / "config_check_result"
    told = json.loads((folder / "result.json").read_text())
    assert (told["level"], told["findings"]) == ("pass", [])
    assert told["coverage"]["read"] == {"env": 1, "pip": 1, "hyperparameters": 1}
    not_read = [one["what"] for one in told["coverage"]["not_read"]]
    assert not_read == ["dataset, weights, random", "the optimizer"]
    assert all(what in done.stdout.splitlines()[3] for what in not_read)
    assert levels(folder) == {"env": "pass", "pip": "pass", "hyperparameters": "pass"}
    found = read_workbook(folder / "result.xlsx")
    assert [*found] == ["summary", "env", "pip", "hyperparameters", "findings"]
    assert all(not found[name].rows for name in ("env", "pip", "hyperparameters", "findings"))
    assert found["env"].header == ["bench_env_name", "cmp_env_name", "bench_value", "cmp_value", "level"]
    assert found["pip"].header == ["package", "bench version", "cmp version", "level"]
    assert stat.S_IMODE((folder / "result.xlsx").stat().st_mode) == 0o640
    assert (folder / "bench" / STATIC).is_file()
    assert (folder / "cmp" / "env").is_file()


def test_other_settings_are_named_what_matters_first(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A4, A7, A8."""
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("NCCL_DETERMINISTIC", "0")
    call("config_check", "-d", "train1.sh", "a1.yaml", "-o", "s1.zip", cwd=files)
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING")
    monkeypatch.delenv("NCCL_DETERMINISTIC")
    monkeypatch.setenv("A_TOKEN", "very-secret")
    call("config_check", "-d", "train2.sh", "a2.yaml", "-o", "s2.zip", cwd=files)
    assert b"very-secret" not in zipfile.ZipFile(files / "s2.zip").read("env")
    done = call("config_check", "-c", "s1.zip", "s2.zip", "-o", "out", cwd=files)
    assert done.returncode == 1
    assert levels(files / "out") == {"env": "error", "pip": "pass", "hyperparameters": "error"}
    name = "hyperparameters_static.json"
    assert set(rows(files / "out", "hyperparameters")) == {
        (name, "batch", "bs", 4.0, 8.0, "mapping", "error"),
        (name, "bf16", "Only in benchmark", "True", "", "", "warning"),
        (name, "Only in comparison", "fp16", "", "True", "", "warning"),
        (name, "seed", "seed", "1234", "42", "pure name", "error"),
    }
    env = [row for row in rows(files / "out", "env") if row[-1] != "info"]
    assert env == [("CUDA_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING", "1", "0", "error")]
    text = done.stdout
    assert text.index("seed: 1234 | 42") < text.index("CUDA_LAUNCH_BLOCKING")
    page = (files / "out/result.html").read_text()
    assert "very-secret" not in page
    assert "CUDA_LAUNCH_BLOCKING" in page
    assert "http" not in page.replace("http-equiv", "")
    # What it runs is fixed, and named by its digest.
    assert page.count("<script") == 1
    assert "script-src 'sha256-" in page


@pytest.mark.parametrize("version", VERSIONS)
def test_packs_of_the_published_package_are_compared(version: str, tmp_path: Path) -> None:
    """A4, A5 with packs that mindstudio-probe wrote."""
    packs = PUBLISHED / version
    static = call("config_check", "-c", packs / "static_1.zip", packs / "static_2.zip", "-o", tmp_path / "s")
    assert static.returncode == 1
    assert levels(tmp_path / "s") == {"env": "error", "pip": "pass", "hyperparameters": "error"}
    assert ("CUDA_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING", "0", "1", "error") in rows(tmp_path / "s", "env")
    assert ("NCCL_ALGO", "NCCL_ALGO", "Ring", "None", "error") in rows(tmp_path / "s", "env")
    ours = write_pack(tmp_path / "ours.zip", {"env": {"NCCL_ALGO": "Ring"}, "pip": "", STATIC: {}})
    call("config_check", "-c", packs / "static_1.zip", ours, "-o", tmp_path / "o")
    assert levels(tmp_path / "o")["env"] == "pass"  # 8.1.1 sets a seed of hashes in its own process
    assert len(rows(tmp_path / "s", "hyperparameters")) == 4
    done = call("config_check", "-c", packs / "dynamic_1.zip", packs / "dynamic_2.zip", "-o", tmp_path / "d")
    assert done.returncode == 1
    expected = {"env": "pass", "pip": "pass", "dataset": "pass", "weights": "error", "random": "pass"}
    assert levels(tmp_path / "d") == expected
    assert [row[:4] for row in rows(tmp_path / "d", "weights")] == [
        (0.0, 0.0, "l1.weight", "False"),
        (0.0, 0.0, "l1.bias", "True"),
        (1.0, 0.0, "l1.weight", "False"),
        (1.0, 0.0, "l1.bias", "True"),
    ]
    assert [row[2] for row in rows(tmp_path / "d", "dataset")[:3]] == ["args.0", "kwargs.mask", "kwargs.extra.k.0"]
    assert {row[-1] for row in rows(tmp_path / "d", "random")} == {"True"}
    assert mentions(done.stdout, "start-weights-differ")


def test_bad_input_is_reported_in_one_line_with_status_2(files: Path) -> None:
    """A11, A12, A13."""
    (files / "bad.zip").write_text("no zip")
    good = write_pack(files / "b.zip", {"env": {}})
    cases = {
        ("-c", "nope.zip", "b.zip"): '"nope.zip" does not exist',
        ("-c", "bad.zip", "b.zip"): '"bad.zip" is not a zip file',
        ("-c", "b.zip", "train1.sh"): '"train1.sh" is no pack (.zip), the other one is',
        ("-c", "train1.sh", "b.zip"): "give two packs, or two checkpoints",
        ("-d", "-o", "out.tar"): "ends with .zip, found 'out.tar'",
        ("-d", "nope.sh", "a1.yaml", "gone.sh"): '"nope.sh", "gone.sh" do not exist',
        ("-d", "-o", "bad.zip"): "The file is unchanged",
        ("-c", "b.zip", "b.zip", "--tolerance", "2"): "tolerance must be",
        ("-c", "b.zip", "b.zip", "--variables", "no.yaml"): "no.yaml",
        ("-d", "-c", "b.zip", "b.zip"): "not allowed with",
    }
    for words, expected in cases.items():
        done = call("config_check", *words, cwd=files)
        assert done.returncode == 2, words
        assert expected in done.stderr, (words, done.stderr)
        assert done.stderr.count("\n") == 1, words
    both = call("config_check", "-c", "nope.zip", "bad.zip", cwd=files)
    assert "nope.zip" in both.stderr
    assert "bad.zip" in both.stderr
    assert good.is_file()
    assert not (files / "config_check_result").exists()


def test_a_folder_with_other_files_is_left_alone(files: Path) -> None:
    """A15, and a second result in the place of the first."""
    write_pack(files / "a.zip", {"env": {}, STATIC: {}})
    write_pack(files / "b.zip", {"env": {"A": "1"}})
    before = sorted(files.rglob("*"))
    done = call("config_check", "-c", "a.zip", "b.zip", "-o", ".", cwd=files)
    assert done.returncode == 2
    assert mentions(done.stderr, "folder-has-more-than-result")
    assert sorted(files.rglob("*")) == before
    call("config_check", "-c", "a.zip", "b.zip", "-o", "out", cwd=files)
    assert (files / "out/bench" / STATIC).exists()
    assert call("config_check", "-c", "b.zip", "b.zip", "-o", "out", cwd=files).returncode == 0
    assert not (files / "out/bench" / STATIC).exists()
    for stranger in ("notes.txt", "bench/notes.txt", "cmp/env/notes.txt"):
        path = files / "out" / stranger
        if path.parent.is_file():
            path.parent.unlink()
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        assert call("config_check", "-c", "b.zip", "b.zip", "-o", "out", cwd=files).returncode == 2
        assert path.read_text() == "mine"
        path.unlink()
    os.symlink(files / "a.zip", files / "out/bench/link")
    assert call("config_check", "-c", "b.zip", "b.zip", "-o", "out", cwd=files).returncode == 2
    assert (files / "a.zip").exists()


def test_names_and_values_of_a_stranger_drive_neither_terminal_nor_page_nor_sheet(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>\x1b[2J\n"
    write_pack(tmp_path / "a.zip", {"env": {f"OMP_NUM_THREADS{evil}": "1"}, STATIC: {f"=seed{evil}": evil}})
    write_pack(tmp_path / "b.zip", {"env": {"NCCL_ALGO": evil}, STATIC: {"other": "\ud800"}})
    done = call("config_check", "-c", "a.zip", "b.zip", "-o", "out", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    page = (tmp_path / "out/result.html").read_text("utf-8")
    assert "\x1b" not in done.stdout + page
    assert "<img" not in page
    (row,) = [row for row in rows(tmp_path / "out", "hyperparameters") if "seed" in str(row[1])]
    assert str(row[1]).startswith("'=seed")
