from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.coded_texts import mentions
from support.row_by_row import for_each

from msprobe.cli import main, summary
from msprobe.messages import said

NAN, INF = float("nan"), float("inf")


def tensor(maximum: Any = 1.0, minimum: Any = 0.0, mean: Any = 0.5, norm: Any = 1.0) -> dict[str, Any]:
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [2],
        "Max": maximum,
        "Min": minimum,
        "Mean": mean,
        "Norm": norm,
        "requires_grad": False,
    }


def forward(*results: dict[str, Any]) -> dict[str, Any]:
    return {"input_args": [tensor()], "input_kwargs": {}, "output": list(results)}


def write(folder: Path, data: dict[str, Any], **more: Any) -> None:
    folder.mkdir(parents=True)
    header = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
    (folder / "dump.json").write_text(json.dumps({**header, "data": data, **more}, indent=1))


HEALTHY = {
    "Functional.linear.0.forward": forward(tensor()),
    "Tensor.sum.0.forward": forward(tensor()),
    "Tensor.mul.0.forward": forward(tensor()),
    "Tensor.mul.0.backward": {"input": [tensor()], "output": [tensor(), None]},
    "Module.fc.Linear.forward.0": forward(tensor()),
    "Module.fc.Linear.backward.0": {"input": [tensor()], "output": [tensor()]},
    "Module.fc.Linear.parameters_grad": {"weight": [tensor()]},
}


@for_each(
    ("name", "kind"),
    [
        ("Functional.linear.0.forward", "forward"),
        ("Functional.linear.0.backward", "backward"),
        ("Module.forward.Linear.backward.3", "backward"),
        ("Module.backward.fc.Linear.forward.12", "forward"),
        ("Module.fc.Linear.parameters_grad", "parameters_grad"),
        ("x_grad.0.debug", "debug"),
        ("odd", ""),
    ],
)
def test_kind_is_read_from_the_end_of_the_name(name: str, kind: str) -> None:
    assert summary.kind_of(name) == kind


def test_each_part_has_a_line_with_its_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "d" / "step0" / "rank0", HEALTHY)
    write(tmp_path / "d" / "step0" / "rank1", {"Tensor.sum.0.forward": forward(tensor())})
    write(tmp_path / "d" / "step10" / "rank0", HEALTHY)
    assert main(["summary", str(tmp_path / "d")]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == said("dump-recorded-as", tmp_path / "d", "statistics", "mix", "pytorch")
    rows = [line.split()[:8] for line in out if line.split()[0].isdigit()]
    assert rows == [
        ["0", "0", "7", "4", "2", "1", "13", "0"],
        ["0", "1", "1", "1", "0", "0", "2", "0"],
        ["10", "0", "7", "4", "2", "1", "13", "0"],
    ]
    assert f"        {said('forward-families', 'Tensor 2, Functional 1, Module 1')}" in out
    assert not [line for line in out if mentions(line, "first-nan-or-inf") or mentions(line, "part-interrupted")]


def test_the_first_nan_or_infinity_is_named_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = {
        # Written early, filled after backward: not where it began.
        "Module.fc.Linear.parameters_grad": {"weight": [tensor(NAN, NAN, NAN, NAN)]},
        # A null is not a NaN: empty tensors and booleans have them.
        "Tensor.empty.0.forward": forward(tensor(None, None, None, None), tensor(True, False, None, None)),
        "Tensor.log.0.forward": forward(tensor(), tensor(1.0, -INF, -INF, INF)),
        "Tensor.sum.0.forward": forward(tensor(1.0, 1.0, 1.0, INF)),
    }
    write(tmp_path / "rank", data)
    assert main(["summary", str(tmp_path / "rank")]) == 0
    out = capsys.readouterr().out
    assert mentions(f"{out}.", "first-nan-or-inf", tensor="Tensor.log.0.forward output.1\n")
    assert out.splitlines()[2].split()[7] == "3"


def test_a_nan_in_parameter_gradients_alone_is_named_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "rank", {"Module.fc.Linear.parameters_grad": {"weight": [tensor(NAN, NAN, NAN, NAN)]}})
    assert main(["summary", str(tmp_path / "rank" / "dump.json")]) == 0
    expected = "Module.fc.Linear.parameters_grad weight\n"
    assert mentions(capsys.readouterr().out, "first-nan-or-inf", tensor=expected)


def test_an_interrupted_part_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "step0" / "rank0", HEALTHY, msprobe={"complete": False})
    write(tmp_path / "step1" / "rank0", HEALTHY, msprobe={"complete": True})
    assert main(["summary", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count(f"{said('part-interrupted')}\n") == 1


def test_saved_variables_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "step0" / "rank"
    write(folder, {"x.0.debug": tensor(), "x_grad.0.debug": tensor()})
    (folder / "dump.json").rename(folder / "debug.json")
    assert main(["summary", str(tmp_path)]) == 0
    assert said("saved-variables", 2) in capsys.readouterr().out


def test_a_broken_part_does_not_hide_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "step0" / "rank0", HEALTHY)
    (tmp_path / "step0" / "rank0" / "dump.json").write_text('{"task": ')
    write(tmp_path / "step1" / "rank0", HEALTHY)
    assert main(["summary", str(tmp_path)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert "cannot be read" in out[0]
    assert "step0" in out[0]
    assert out[-3].split()[:4] == ["1", "0", "7", "4"]
    assert out[-1].startswith("Not read: step 0, rank 0 ")


def test_a_new_task_or_level_starts_a_new_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "step0" / "rank0", HEALTHY)
    write(tmp_path / "step1" / "rank0", HEALTHY, level="L0")
    assert main(["summary", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    for level in ("mix", "L0"):
        assert mentions(out, "dump-recorded-as", task="statistics", level=level, framework="pytorch\n") == 1


def test_size_counts_tensor_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "rank", {})
    (tmp_path / "rank" / "dump_tensor_data").mkdir()
    (tmp_path / "rank" / "dump_tensor_data" / "a.pt").write_bytes(b"x" * 5_000_000)
    assert main(["summary", str(tmp_path / "rank")]) == 0
    assert "5.0 MB" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123456, "123 kB"), (5 * 10**13, "50.0 TB")],
)
def test_sizes_read_well(size: int, text: str) -> None:
    assert summary._size_text(size) == text


def test_what_is_no_dump_is_an_error_that_names_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (tmp_path, tmp_path / "absent"):
        assert main(["summary", str(place)]) == 2  # 1 says that a part of a dump is broken
        assert str(place) in capsys.readouterr().err


def test_steps_of_different_runs_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def of(pid: int, started: int) -> dict[str, Any]:
        return {"complete": True, "process": {"pid": pid, "host": "here", "started": started}}

    for step, owner in enumerate([of(8, 500), of(8, 500), of(7, 100), of(7, 100), of(7, 200)]):
        write(tmp_path / "d" / f"step{step}" / "rank0", HEALTHY, msprobe=owner)
        write(tmp_path / "d" / f"step{step}" / "rank1", HEALTHY, msprobe=of(9, 500))
    assert main(["summary", str(tmp_path / "d")]) == 0
    out = capsys.readouterr().out.splitlines()
    runs = [("steps 0 to 1", "8 on here"), ("steps 2 to 3", "7 on here"), ("step 4", "7 on here")]
    of_runs = "; ".join(said("steps-of-process", *one) for one in runs)
    assert [line for line in out if mentions(line, "steps-of-several-runs")] == [
        f"  {said('steps-of-several-runs', 'rank 0', 3, of_runs)}"
    ]


def test_the_journal_of_a_finished_step_is_not_part_of_its_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "d" / "step0" / "rank0"
    write(folder, HEALTHY, msprobe={"complete": True})
    main(["summary", str(tmp_path / "d")])
    before = capsys.readouterr().out
    (folder / "dump-1-a.journal").write_bytes(bytes(1 << 20))
    main(["summary", str(tmp_path / "d")])
    assert capsys.readouterr().out == before


def test_a_mask_is_distinguished_from_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    low = tensor(1.0, float("-inf"), float("-inf"), float("inf"))
    data = {"Tensor.masked_fill.0.forward": forward(low), "Torch.add.0.forward": forward(low)}
    write(tmp_path / "step0" / "rank", data)
    write(tmp_path / "step1" / "rank", {**data, "Torch.log.0.forward": forward(tensor(float("nan")))})
    write(tmp_path / "step2" / "rank", {"Torch.log.0.forward": forward(low)})
    assert main(["summary", str(tmp_path)]) == 0
    first, second, third = (
        text
        for text in capsys.readouterr().out.splitlines()
        if mentions(text, "masked-on-purpose") or mentions(text, "first-nan-or-inf")
    )
    assert first.strip() == said("masked-on-purpose", "Tensor.masked_fill.0.forward output.0")
    assert second.strip() == said("first-nan-or-inf", "Torch.log.0.forward output.0")
    assert third.strip() == said("first-nan-or-inf", "Torch.log.0.forward output.0")


def test_what_is_gone_or_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for step in range(3):
        for rank in range(2):
            if (step, rank) != (2, 1):
                write(tmp_path / f"step{step}" / f"rank{rank}", {"Torch.exp.0.forward": forward(tensor())})
                (tmp_path / f"step{step}" / f"rank{rank}" / "stack.json").write_text("{}")
    assert main(["summary", str(tmp_path)]) == 1
    assert said("rank-missing-in-step", 2, 1) in capsys.readouterr().out
    (tmp_path / "step1" / "rank0" / "dump.json").unlink()
    assert main(["summary", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert mentions(printed, "cannot-be-read", what="step 1, rank 0")
    assert "dump.json" in printed
