"""What GradComparator finds in two runs: the acceptance checks of its specification, on files made by hand."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.coded_texts import mentions, pieces_of, raising
from support.command_line import call
from support.row_by_row import for_each

from msprobe import GradComparator
from msprobe.errors import InvalidInputError, MsprobeError, PathError
from msprobe.grad_probe.verdict import Thresholds, problems_of
from msprobe.messages import said

BOM = b"\xef\xbb\xbf"
Directions = Mapping[str, Any]


def write_step(rank: Path, step: int, directions: Directions, header: str = "param_name,max,min,norm,shape") -> None:
    """A step as a probe writes it."""
    (rank / f"step{step}").mkdir(parents=True, exist_ok=True)
    lines = [header]
    for name, direction in directions.items():
        array = np.asarray(direction)
        np.save(rank / f"step{step}" / f"{name}.npy", array)
        lines.append(f'{name},1.0,-1.0,1.0,"{list(array.shape)}"')
    (rank / f"grad_summary_{step}.csv").write_bytes(BOM + "\r\n".join([*lines, ""]).encode())


def write_run(folder: Path, steps: Mapping[int, Directions], rank: int = 0, **more: Any) -> Path:
    for step, directions in steps.items():
        write_step(folder / f"rank{rank}", step, directions, **more)
    return folder


def flipped(size: int, count: int) -> list[bool]:
    """All but ``count`` elements are True."""
    return [False] * count + [True] * (size - count)


def lines_of(file: Path) -> list[list[str]]:
    data = file.read_bytes()
    assert data.startswith(BOM)
    return list(csv.reader(io.StringIO(data.decode("utf-8-sig"), newline="")))


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Check 17: w has 4 elements, one other from step 1 on; b has 10, one other from step 2 on."""
    steps = (0, 1, 2, 10)
    write_run(tmp_path / "a", {step: {"w": flipped(4, 0), "b": flipped(10, 0)} for step in steps})
    write_run(tmp_path / "b", {step: {"w": flipped(4, step >= 1), "b": flipped(10, step >= 2)} for step in steps})
    return tmp_path / "a", tmp_path / "b"


def test_similarities_are_written_byte_for_byte(runs: tuple[Path, Path], tmp_path: Path) -> None:
    GradComparator.compare_distributed(*runs, tmp_path / "out")
    assert (tmp_path / "out" / "rank0" / "similarities.csv").read_bytes() == (
        BOM + b"step,0,1,2,10\r\nw,1.0,0.75,0.75,0.75\r\nb,1.0,1.0,0.9,0.9\r\n"
        b"summary,1.0,0.9285714285714286,0.8571428571428571,0.8571428571428571\r\n"
    )


def test_the_verdict_names_the_first_bad_step_of_each(runs: tuple[Path, Path], tmp_path: Path) -> None:
    found = GradComparator.compare_distributed(*runs, tmp_path / "out")
    assert (tmp_path / "out" / "verdict.csv").read_bytes() == (
        BOM + b"rank,param_name,step,similarity,previous,rule\r\n0,w,1,0.75,1.0,drop\r\n0,b,2,0.9,1.0,drop\r\n"
    )
    assert found.line == "first suspicious: rank 0 step 1 w 1 -> 0.75"
    assert found.exit_code == 1


def test_of_one_step_the_parameter_nearest_to_the_loss_comes_first(tmp_path: Path) -> None:
    names = ["embedding", "layers.0", "layers.1", "head"]
    one = write_run(tmp_path / "a", {step: {name: flipped(10, 0) for name in names} for step in (0, 1)})
    bad = {name: flipped(10, 5 if name.startswith(("emb", "lay")) else 0) for name in names}
    other = write_run(tmp_path / "b", {0: {name: flipped(10, 0) for name in names}, 1: bad})
    found = GradComparator.compare_distributed(one, other, tmp_path / "out")
    assert [problem.parameter for problem in found.problems] == ["layers.1", "layers.0", "embedding"]


@for_each(
    ("values", "expected"),
    [
        ([0.96], ["first step"]),
        ([0.98], []),
        ([0.97], []),
        ([0.99, 0.96], []),
        ([0.99, 0.959], ["drop"]),
        ([0.5, 0.5, 0.48], ["first step"]),
        ([1.0, None, 0.9], ["drop"]),
        ([None, 0.9], ["first step"]),
    ],
)
def test_the_rule(values: list[float | None], expected: list[str]) -> None:
    found = problems_of(0, "w", 0, dict(enumerate(values)), Thresholds())
    assert [problem.rule for problem in found] == expected


def test_other_thresholds(runs: tuple[Path, Path], tmp_path: Path) -> None:
    assert not GradComparator.compare_distributed(*runs, tmp_path / "out", drop=0.25).problems


@pytest.mark.parametrize("names", [("path1", "path2", "output_dir"), ("dump_path1", "dump_path2", "output_path")])
def test_both_spellings_of_the_arguments(names: Sequence[str], runs: tuple[Path, Path], tmp_path: Path) -> None:
    given = dict(zip(names, (*map(str, runs), str(tmp_path / "out")), strict=True))
    assert GradComparator.compare_distributed(**given).exit_code == 1
    given.update({names[0]: str(runs[0] / "rank0"), names[1]: str(runs[1] / "rank0"), names[2]: str(tmp_path / "one")})
    assert GradComparator.compare(**given).exit_code == 1
    assert (tmp_path / "one" / "similarities.csv").exists()


def test_names_to_import() -> None:
    from msprobe.core.grad_probe.grad_compare import GradComparator as old

    assert old is GradComparator


# ---------------------------------------------------------------- what is missing


def test_no_common_rank(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", {0: {"w": [True]}})
    other = write_run(tmp_path / "b", {0: {"w": [True]}}, rank=1)
    with raising(InvalidInputError, "gradients-without-common-rank", ranks="rank 0", other_ranks="rank 1"):
        GradComparator.compare_distributed(one, other, tmp_path / "out")


def test_no_common_step(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", {0: {"w": [True]}})
    other = write_run(tmp_path / "b", {1: {"w": [True]}})
    with raising(InvalidInputError, "no-gradients-to-compare"):
        GradComparator.compare_distributed(one, other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_ranks_steps_and_parameters_of_one_side_are_reported_and_the_rest_is_compared(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", {0: {"w": [True, True], "only": [True]}, 1: {"w": [True, True]}})
    write_run(one, {0: {"w": [True]}}, rank=3)
    other = write_run(tmp_path / "b", {0: {"w": [True, True], "new": [True]}, 2: {"w": [True, True]}})
    found = GradComparator.compare_distributed(one, other, tmp_path / "out", quiet=True)
    first, second = said("not-in-first-run"), said("not-in-second-run")
    assert [(note.what, note.why) for note in found.not_compared] == [
        (said("gradients-of-rank", 3), second),
        (said("gradients-of-rank-in", 0, said("gradients-of-step", 1)), second),
        (said("gradients-of-rank-in", 0, said("gradients-of-step", 2)), first),
        (said("gradients-of-rank-in", 0, "only"), said("reason-in-steps", second, "0")),
        (said("gradients-of-rank-in", 0, "new"), said("reason-in-steps", first, "0")),
    ]
    assert found.notes == [f"{note.what}: {note.why}" for note in found.not_compared]
    assert lines_of(tmp_path / "out" / "rank0" / "similarities.csv") == [
        ["step", "0"],
        ["w", "1.0"],
        ["summary", "1.0"],
    ]


def test_a_missing_file_leaves_an_empty_cell(runs: tuple[Path, Path], tmp_path: Path) -> None:
    (runs[1] / "rank0" / "step1" / "w.npy").unlink()
    found = GradComparator.compare_distributed(*runs, tmp_path / "out")
    assert lines_of(tmp_path / "out" / "rank0" / "similarities.csv")[1] == ["w", "1.0", "", "0.75", "0.75"]
    (note,) = found.not_compared
    assert note.why == said("reason-in-steps", said("no-direction-in-second"), "1")
    assert found.problems[0].line == "rank 0 step 2 b 1 -> 0.9"
    assert found.problems[1].line == "rank 0 step 2 w 1 -> 0.75"


def test_other_shapes_and_types_are_reported(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", {0: {"w": [True], "v": [True, False], "x": [True]}})
    other = write_run(tmp_path / "b", {0: {"w": [1.0], "v": [[True, False]], "x": [True]}})
    found = GradComparator.compare_distributed(one, other, tmp_path / "out")
    assert any("w: cannot be compared" in note and "found float64" in note for note in found.notes)
    assert any("v: cannot be compared: the shapes differ: [2] and [1, 2]" in note for note in found.notes)
    assert lines_of(tmp_path / "out" / "rank0" / "similarities.csv")[-2:] == [["x", "1.0"], ["summary", "1.0"]]


def test_headers_of_static_graphs_names_like_summary_and_numbers(tmp_path: Path) -> None:
    steps = {step: {"summary": [True], "0": [True, False], "1": [True]} for step in (0, 1)}
    one = write_run(tmp_path / "a", steps, header="Param_name,Max,Min,Norm,Shape")
    other = write_run(tmp_path / "b", steps)
    GradComparator.compare_distributed(one, other, tmp_path / "out")
    assert [line[0] for line in lines_of(tmp_path / "out" / "rank0" / "similarities.csv")] == [
        "step", "summary", "0", "1", "summary",
    ]  # fmt: skip


def test_wrappers_and_a_mapping(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", {0: {"module.fc.weight": [True], "enc.0.w": [True], "old": [True]}})
    other = write_run(tmp_path / "b", {0: {"fc.weight": [True], "encoder.layers.0.w": [True], "new": [False]}})
    table = tmp_path / "names.json"
    table.write_text(json.dumps({"old": "new", r"^enc\.": "encoder.layers."}))
    found = GradComparator.compare_distributed(one, other, tmp_path / "out", mapping=table)
    assert not found.notes
    assert [problem.parameter for problem in found.problems] == ["old"]


def test_all_that_is_wrong_in_a_mapping_is_reported_with_its_line(tmp_path: Path) -> None:
    runs = write_run(tmp_path / "a", {0: {"w": [True]}}), write_run(tmp_path / "b", {0: {"w": [True]}})
    wrong = {"(": "x", "fc": 3, "(a)": r"\2"}
    table = tmp_path / "names.json"
    table.write_text(json.dumps(wrong, indent=1))
    for mapping in (table, wrong):
        with pytest.raises(InvalidInputError) as problem:
            GradComparator.compare_distributed(*runs, tmp_path / "out", mapping=mapping)
        lines = str(problem.value).splitlines()
        assert sum('field "' in line for line in lines) == 3, lines
        assert sum(f"{table}:{line}" in str(problem.value) for line in (2, 3, 4)) == (3 if mapping is table else 0)
    table.write_text("[]")
    with pytest.raises(InvalidInputError, match=r"names\.json"):
        GradComparator.compare_distributed(*runs, tmp_path / "out", mapping=table)


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with raising(PathError, "no-gradients-folder", what="does not exist"):
        GradComparator.compare_distributed(tmp_path / "no", tmp_path, tmp_path / "out")
    with pytest.raises(InvalidInputError, match="path2 is missing; output_dir is missing"):
        GradComparator.compare_distributed(tmp_path)
    with pytest.raises(InvalidInputError, match="path1 and dump_path1 are two names"):
        GradComparator.compare_distributed(tmp_path, tmp_path, tmp_path, dump_path1=tmp_path)
    with raising(InvalidInputError, "gradients-without-common-rank"):
        GradComparator.compare_distributed(tmp_path, tmp_path, tmp_path / "out")


# ---------------------------------------------------------------- other forms


def test_directions_of_all_forms_are_compared(tmp_path: Path) -> None:
    signs = np.array([1, 0, -1, 1, 1, 0, -1, 1, 1, 2], np.int8).reshape(2, 5)
    others = np.array([1, 0, -1, 1, -1, 1, -1, 1, 1, 2], np.int8).reshape(2, 5)
    forms = {
        "ternary": lambda array: array,
        "bool": lambda array: array == 1,
        "packed": lambda array: np.packbits(array == 1),
    }
    for left, make_left in forms.items():
        for right, make_right in forms.items():
            folder = tmp_path / left / right
            for side, array, make in (("a", signs, make_left), ("b", others, make_right)):
                rank = write_run(folder / side, {0: {"w": make(array)}}) / "rank0"
                (rank / "grad_summary_0.csv").write_bytes(
                    BOM + b'param_name,max,min,norm,shape\r\nw,1,1,1,"[2, 5]"\r\n'
                )
            GradComparator.compare_distributed(folder / "a", folder / "b", folder / "out")
            details = lines_of(folder / "out" / "rank0" / "details.csv")[1]
            assert details[:4] == ["w", "0", "0.8", "10"]
            assert details[4:] == (["0.7777777777777778", "9"] if left == right == "ternary" else ["", ""])


def test_runs_without_directions_are_compared_by_their_numbers(tmp_path: Path) -> None:
    for side, norm, crc in (("a", "1.0", "aaaaaaaa"), ("b", "1.5", "bbbbbbbb")):
        rank = tmp_path / side / "rank0"
        rank.mkdir(parents=True)
        for step in range(3):
            other = (norm, crc) if step >= 1 else ("1.0", "aaaaaaaa")
            rows = f"w,{other[1]},1.0,-1.0,{other[0]},[4]\r\nb,cccccccc,1.0,1.0,1.0,[1]\r\n"
            (rank / f"grad_summary_{step}.csv").write_bytes(
                BOM + f"param_name,MD5,max,min,norm,shape\r\n{rows}".encode()
            )
    found = GradComparator.compare_distributed(tmp_path / "a", tmp_path / "b", tmp_path / "out")
    assert found.line == "first suspicious: rank 0 step 1 w: norm differs: 1.0 and 1.5"
    assert lines_of(tmp_path / "out" / "rank0" / "differences.csv")[1:] == [["w", "1", "norm", "1.0", "1.5"]]
    assert not GradComparator.compare_distributed(tmp_path / "a", tmp_path / "a", tmp_path / "out").problems


def test_an_empty_gradient_has_no_similarity(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", {0: {"w": np.zeros((0, 3), bool), "b": [True]}})
    found = GradComparator.compare_distributed(one, one, tmp_path / "out")
    assert not found.problems
    assert lines_of(tmp_path / "out" / "rank0" / "similarities.csv")[1] == ["w", ""]


def test_files_of_strangers_are_data(tmp_path: Path) -> None:
    one = write_run(tmp_path / "a", {0: {"w": [True], "x": [True], "y": [True], "z": [True], "ok": [True]}})
    other = write_run(tmp_path / "b", {0: {name: [True] for name in ("w", "x", "y", "z", "ok")}})
    step = other / "rank0" / "step0"
    np.save(step / "w.npy", np.array([{"a": 1}], object), allow_pickle=True)
    (step / "x.npy").write_bytes(
        b"\x93NUMPY\x01\x00v\x00{'descr': '|b1', 'fortran_order': False, 'shape': (99999999999,)}"
    )
    header = b"{'descr': '|b1', 'fortran_order': False, 'shape': (9999999999999,), }".ljust(117) + b"\n"
    (step / "y.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\1")
    (step / "z.npy").write_bytes(b"nothing")
    found = GradComparator.compare_distributed(one, other, tmp_path / "out")
    assert len(found.notes) == 4
    assert lines_of(tmp_path / "out" / "rank0" / "similarities.csv")[-2:] == [["ok", "1.0"], ["summary", "1.0"]]
    (other / "rank0" / "grad_summary_0.csv").write_bytes(b"\xff\xfe\0nothing")
    with raising(MsprobeError, "no-gradients-to-compare"):
        GradComparator.compare_distributed(one, other, tmp_path / "out")


def test_a_name_that_leads_out_of_the_folder_stays_inside(tmp_path: Path) -> None:
    name = "../../../escape<script>$x$"
    for side in "ab":
        rank = write_run(tmp_path / side, {0: {"w": [True]}}) / "rank0"
        (rank / "grad_summary_0.csv").write_bytes(BOM + f"param_name,max\r\n{name},1\r\nw,1\r\n".encode())
    GradComparator.compare_distributed(tmp_path / "a", tmp_path / "b", tmp_path / "out" / "deep" / "er")
    assert all((tmp_path / "out" / "deep" / "er") in path.parents for path in tmp_path.rglob("*escape*"))
    page = (tmp_path / "out" / "deep" / "er" / "gradients.html").read_text()
    assert "<script>$x$" not in page


# ---------------------------------------------------------------- the command


def test_the_command_and_its_exit_status(runs: tuple[Path, Path], tmp_path: Path) -> None:
    same = call("grad_compare", runs[0], runs[0], "-o", tmp_path / "same")
    assert same.returncode == 0, same.stderr
    assert mentions(same.stdout, "gradients-all-agree", parameters=2, steps=4, ranks=1)
    bad = call("grad_compare", runs[0], runs[1], "-o", tmp_path / "out")
    assert bad.returncode == 1
    assert "first suspicious: rank 0 step 1 w 1 -> 0.75" in bad.stdout
    assert "then: rank 0 step 2 b 1 -> 0.9" in bad.stdout
    assert "verdict.csv" in bad.stdout
    one = call("grad_compare", runs[0] / "rank0", runs[1] / "rank0", "-o", tmp_path / "one", "--drop", "0.3")
    assert one.returncode == 0
    wrong = call("grad_compare", runs[0], tmp_path / "nowhere", "-o", tmp_path / "out")
    assert wrong.returncode == 2
    assert "does not exist" in wrong.stderr


def test_pictures_as_the_published_tool_names_them(runs: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    GradComparator.compare_distributed(*runs, tmp_path / "out")
    pictures = tmp_path / "out" / "rank0" / "similarities_picture"
    assert {path.name for path in pictures.iterdir()} == {
        "w_similarities.png", "b_similarities.png", "summary_similarities.png",
    }  # fmt: skip
    GradComparator.compare_distributed(*runs, tmp_path / "none", plot="none")
    assert not (tmp_path / "none" / "rank0" / "similarities_picture").exists()


def write_norms(rank: Path, step: int, norms: Mapping[str, float], directions: Directions) -> None:
    write_step(rank, step, directions)
    lines = ["param_name,max,min,norm,shape"]
    lines += [f'{name},1.0,-1.0,{norm!r},"{list(np.shape(directions[name]))}"' for name, norm in norms.items()]
    (rank / f"grad_summary_{step}.csv").write_bytes(BOM + "\r\n".join([*lines, ""]).encode())


def test_a_gradient_that_is_rounding_alone_is_noted_and_not_judged(tmp_path: Path) -> None:
    for name, noise, size in (("a", 0, 1e-9), ("b", 5, 2e-9)):
        for step in (0, 1):
            norms = {"conv.weight": 1.0, "conv.bias": size, "head.weight": 0.5, "head.bias": 0.1}
            directions = {one: flipped(10, noise if one == "conv.bias" else 0) for one in norms}
            write_norms(tmp_path / name / "rank0", step, norms, directions)
    found = GradComparator.compare_distributed(tmp_path / "a", tmp_path / "b", tmp_path / "out")
    assert (found.problems, found.exit_code) == ([], 0)
    (note,) = found.notes
    assert "conv.bias" in note
    assert "gradient-is-noise" in pieces_of(note)
    assert "conv.bias,0.5,0.5" in (tmp_path / "out/rank0/similarities.csv").read_text("utf-8-sig")


def test_a_gradient_that_is_small_in_one_run_only_is_judged(tmp_path: Path) -> None:
    for name, flips, size in (("a", 0, 1.0), ("b", 5, 1e-9)):
        norms = {"conv.weight": 1.0, "conv.bias": size, "head.weight": 0.5}
        write_norms(
            tmp_path / name / "rank0", 0, norms, {one: flipped(10, flips if one == "conv.bias" else 0) for one in norms}
        )
    found = GradComparator.compare_distributed(tmp_path / "a", tmp_path / "b", tmp_path / "out")
    assert [one.parameter for one in found.problems] == ["conv.bias"]


def test_a_nan_of_one_run_is_named_as_nan(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for step in (0, 1, 2):
            is_bad = name == "b" and step > 0
            norms = {"w": float("nan") if is_bad else 1.0, "b": 1.0, "both": float("nan")}
            directions = {one: flipped(10, 10 if is_bad and one == "w" else 0) for one in norms}
            write_norms(tmp_path / name / "rank0", step, norms, directions)
    found = GradComparator.compare_distributed(tmp_path / "a", tmp_path / "b", tmp_path / "out")
    second = said("gradient-nan-in-second")
    assert [one.line for one in found.problems] == [f"rank 0 step 1 w: {second}"]
    assert f"0,w,1,,,{second}" in (tmp_path / "out/verdict.csv").read_text("utf-8-sig")
    both = said("reason-in-steps", said("gradient-nan-in-both"), "0, 1, 2")
    assert any(note.endswith(f"both: {both}") for note in found.notes)
