"""What the options and the settings of ``run_ut`` do: its command line, with workers that import no framework anew."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from support.command_line import call
from support.prechecked import TENSOR, InThisProcess, forward, own_threads, rows, watch, write_dump

from msprobe.precheck import pool
from msprobe.precheck.columns import DETAILS_HEADER, STATUS

pytestmark = pytest.mark.usefixtures(own_threads.__name__, "here")
SINES = {f"Torch.sin.{number}.forward": forward(TENSOR) for number in range(3)}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "Worker", InThisProcess)


def state(x: torch.Tensor) -> dict[str, Any]:
    """What an executor switches, as a function sees it."""
    return {
        "mkldnn": torch.backends.mkldnn.enabled,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
        "dtype": x.dtype,
        "threads": torch.get_num_threads(),
    }


@pytest.mark.parametrize(
    ("words", "switched"),
    [
        ("", {}),
        ("+mkldnn=off", {"mkldnn": False}),
        ("+deterministic", {"deterministic": True}),
        ("+autocast=bf16", {"autocast": torch.bfloat16}),
        ("+dtype=bf16", {"dtype": torch.bfloat16}),
        ("+threads=2", {"threads": 2}),
        ("+threads=3+deterministic", {"threads": 3, "deterministic": True}),
    ],
)
def test_what_an_executor_switches_is_switched_in_its_call_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, switched: dict[str, Any]
) -> None:
    seen = watch(monkeypatch, state)
    dump = write_dump(tmp_path, {"Torch.sin.0.forward": forward(TENSOR)})
    found = call("run_ut", "-api_info", dump, "-o", tmp_path, "--candidate", f"cpu{words}")
    assert found.returncode == 0, found.stderr
    plain = {**seen[-1], "dtype": torch.float32}
    assert plain == {**plain, "mkldnn": True, "deterministic": False, "autocast": None, "threads": 1}
    assert seen[0] == {**plain, **switched}
    assert {row[27] for row in rows(tmp_path, "details")[1:]} == {f"cpu{words}"}


def test_one_thread_is_one_though_the_process_has_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = watch(monkeypatch, state)
    dump = write_dump(tmp_path, {"Torch.sin.0.forward": forward(TENSOR)})
    monkeypatch.setattr("msprobe.precheck.torch.runner.runner", _with_four_threads)
    call("run_ut", "-api_info", dump, "-o", tmp_path, "--candidate", "cpu+threads=1")
    assert [one["threads"] for one in seen[:2]] == [1, 4]


def _with_four_threads(task: Any) -> Any:
    from msprobe.precheck.requests import open_requests
    from msprobe.precheck.torch.runner import TorchRunner

    torch.set_num_threads(4)
    return TorchRunner(task, open_requests(task.dump))


def test_the_filter_leaves_out_calls_that_are_the_same_test(tmp_path: Path) -> None:
    more = {
        "Torch.sin.1.forward": forward({**TENSOR, "Max": 1.5, "Mean": 0.1}),
        "Torch.sin.2.forward": forward({**TENSOR, "shape": [2, 4]}),
        "Torch.sin.3.forward": forward({**TENSOR, "dtype": "torch.bfloat16"}),
        "Torch.cos.0.forward": forward(TENSOR),
        "Torch.sum.0.forward": forward(TENSOR, 0),
        "Torch.sum.1.forward": forward(TENSOR, 1),
        "Torch.sum.2.forward": forward(TENSOR, 0),
    }
    dump = write_dump(tmp_path, {"Torch.sin.0.forward": forward(TENSOR), **more})
    kept = ["sin.0", "sin.2", "sin.3", "cos.0", "sum.0", "sum.1"]
    for words, names in (((), ["sin.0", *(name[6:11] for name in more)]), (("-f",), kept)):
        folder = tmp_path / f"out{len(words)}"
        assert call("run_ut", "-api_info", dump, "-o", folder, "--candidate", "cpu", *words).returncode == 0
        assert [row[0] for row in rows(folder, "result")[1:]] == [f"Torch.{name}" for name in names]


def test_precision_says_how_many_decimals_the_files_have(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"run_ut": {"precision": 3}}))
    dump = write_dump(tmp_path, {"Torch.sin.0.forward": forward(TENSOR)})
    for words, decimals in (((), 14), (("-config", config), 3)):
        folder = tmp_path / str(decimals)
        call("run_ut", "-api_info", dump, "-o", folder, "--candidate", "cpu+inject:scale=1e-2", *words)
        (row,) = rows(folder, "details")[1:]
        numbers = [cell for cell in row[4:21] if "." in cell]
        assert len(numbers) > 5
        assert {len(cell.partition(".")[2]) for cell in numbers} == {decimals}


def test_the_summary_has_the_line_of_the_program_and_as_many_calls_as_asked_for(tmp_path: Path) -> None:
    dump = write_dump(tmp_path, SINES)
    inner = "File /usr/lib/site-packages/torch/x.py, line 3, in f"
    stacks = {str(number): [[name], [inner, f"File train.py, line {number}7"]] for number, name in enumerate(SINES)}
    (tmp_path / "stack.json").write_text(json.dumps(stacks))
    found = call("run_ut", "-api_info", dump, "-o", tmp_path, "--candidate", "cpu+inject:scale=1e-2", "--top", 2)
    assert found.stdout.count("reproduce: msprobe op_generate") == 2
    assert mentions(found.stdout, "and-more-failed-calls", count=1)
    (text,) = tmp_path.glob("accuracy_checking_summary_*.txt")
    for shown in (found.stdout, text.read_text(), text.with_suffix(".html").read_text()):
        assert "File train.py, line" in shown
        assert "site-packages" not in shown
    assert all(mentions(text.read_text(), "called-in", frame=f"File train.py, line {number}7") for number in range(3))


@pytest.mark.parametrize("fault", ["scale=1e-2", "nan@0"])
@pytest.mark.parametrize("standard", ["strict", "assert_close"])
def test_errors_of_the_control_are_allowed_in_a_check_that_goes_on_too(
    tmp_path: Path, standard: str, fault: str
) -> None:
    more = {
        "Torch.transpose.0.forward": forward(TENSOR, 0, 1),  # compared bit for bit
        "Torch.rand.0.forward": forward({"type": "int", "value": 1000}),
    }
    dump = write_dump(tmp_path, {**SINES, **more})
    faulty = f"cpu+inject:{fault}"
    words = ("-api_info", dump, "-o", tmp_path, "--standard", standard, "--fail-on", "error")
    for more in ((), ("-csv_path",)):
        results = [*more, *(tmp_path.glob("accuracy_checking_result_*.csv") if more else ())]
        found = call("run_ut", *words, "--candidate", faulty, "--control", faulty, *results)
        assert (found.returncode, found.stdout.splitlines()[0]) == (0, "forward: 4 pass, 1 skip"), found.stdout
        assert [row[1] for row in rows(tmp_path, "result")[1:]][:3] == ["error"] * 3
        (path,) = tmp_path.glob("accuracy_checking_result_*.csv")
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-2]))


@pytest.mark.parametrize("standard", ["strict", "compiler", "8.1.1"])
def test_the_control_may_be_the_details_file_of_a_check_elsewhere(tmp_path: Path, standard: str) -> None:
    dump = write_dump(tmp_path, SINES)
    words = ("run_ut", "-api_info", dump, "--standard", standard, "--fail-on", "error")
    assert call(*words, "-o", tmp_path / "trusted", "--candidate", "cpu", "--control", "cpu").returncode == 0
    (control,) = (tmp_path / "trusted").glob("accuracy_checking_details_*.csv")
    for candidate, status in (("cpu", 0), ("cpu+inject:scale=1e-2", 1)):
        folder = tmp_path / str(status)
        found = call(*words, "-o", folder, "--candidate", candidate, "--control", control)
        assert found.returncode == status, found.stdout
        assert mentions(found.stdout, "judged-beside-control", control=control.name)
        (compared,) = folder.glob("api_precision_compare_result_*.csv")
        lines = compared.read_text(encoding="utf-8-sig").splitlines()[1:]
        assert {line.split(",")[1] for line in lines} == {"error" if status else "pass"}
        assert not list(folder.glob("accuracy_checking_control_*"))
        (row, *_) = rows(folder, "details")[1:]
        assert row[DETAILS_HEADER.index("Control")] == control.name


def test_a_details_file_that_is_no_control_of_this_check_is_refused(tmp_path: Path) -> None:
    dump = write_dump(tmp_path, SINES)
    (tmp_path / "other").mkdir()
    other = write_dump(tmp_path / "other", {"Torch.cos.0.forward": forward(TENSOR)})
    call("run_ut", "-api_info", dump, "-o", tmp_path / "ours", "--candidate", "cpu")
    call("run_ut", "-api_info", other, "-o", tmp_path / "theirs", "--candidate", "cpu")
    (tmp_path / "values").mkdir()
    values = write_dump(tmp_path / "values", {name: forward({**TENSOR, "Max": 7.0}) for name in SINES})
    call("run_ut", "-api_info", values, "-o", tmp_path / "values", "--candidate", "cpu")
    (ours,), (theirs,), (other_values,) = (
        (tmp_path / name).glob("*details*.csv") for name in ("ours", "theirs", "values")
    )
    words = ("run_ut", "-api_info", dump, "-o", tmp_path / "none", "--candidate", "cpu")
    for further, why in (
        (("--control", theirs), "has no row of the calls that are checked"),
        (("--control", other_values), "was made from a different dump: its calls have other arguments"),
        (("--control", ours, "--seed", 3), "was made with --seed 1234, and this check has 3"),
        (("--control", ours, "--standard", "compiler"), "was made with the standard strict"),
        (("--control", tmp_path / "no.csv"), "does not exist"),
        (("--standard", "compiler"), "give --control cpu, or a different device"),
    ):
        found = call(*words, *further)
        assert found.returncode == 2
        assert why in found.stderr, found.stderr
    assert not (tmp_path / "none").exists() or not list((tmp_path / "none").iterdir())


def test_a_call_of_other_arguments_has_no_control_in_a_file(tmp_path: Path) -> None:
    first, *others = SINES
    (tmp_path / "other").mkdir()
    dump = write_dump(tmp_path, SINES)
    other = write_dump(tmp_path / "other", {**SINES, first: forward({**TENSOR, "Max": 7.0})})
    call("run_ut", "-api_info", other, "-o", tmp_path / "other", "--candidate", "cpu")
    (control,) = (tmp_path / "other").glob("*details*.csv")
    found = call("run_ut", "-api_info", dump, "-o", tmp_path, "--candidate", "cpu", "--control", control)
    assert f"forward: {len(others)} pass, 1 skip" in found.stdout
    assert mentions(found.stdout, "control-of-other-arguments")


def test_a_check_is_continued_with_the_control_that_it_had(tmp_path: Path) -> None:
    dump = write_dump(tmp_path, SINES)
    words = ("run_ut", "-api_info", dump, "--candidate", "cpu")
    call(*words, "-o", tmp_path / "with", "--control", "cpu")
    call(*words, "-o", tmp_path / "without")
    results = {name: next((tmp_path / name).glob("*_checking_result_*.csv")) for name in ("with", "without")}
    for name, further, why in (
        ("with", (), "made with the control cpu"),
        ("without", ("--control", "cpu"), "made without a control"),
        ("with", ("--control", next((tmp_path / "without").glob("*details*.csv"))), "made with the control cpu"),
    ):
        found = call(*words, "-csv_path", results[name], *further)
        assert found.returncode == 2
        assert why in found.stderr, found.stderr
    next((tmp_path / "with").glob("*_checking_control_*.csv")).unlink()
    found = call(*words, "-csv_path", results["with"], "--control", "cpu")
    assert (found.returncode, mentions(found.stderr, "control-file-missing")) == (2, True)


def test_files_of_a_standard_that_judges_beside_the_control_say_what_the_console_says(tmp_path: Path) -> None:
    dump = write_dump(tmp_path, SINES)
    # Off by far more than single elements may be, and no more than the control.
    bad = "cpu+inject:scale=1e-2"
    words = ("run_ut", "-api_info", dump, "-o", tmp_path, "--standard", "compiler", "--candidate", bad)
    found = call(*words, "--control", bad)
    assert f"forward: {len(SINES)} pass" in found.stdout
    assert "accuracy_checking_control_" in found.stdout
    assert {row[1] for row in rows(tmp_path, "result")[1:]} == {"pass"}
    assert {row[STATUS] for row in rows(tmp_path, "details")[1:]} == {"pass"}
    other = call(*words[:3], "-o", tmp_path / "bad", *words[5:], "--control", "cpu")
    assert mentions(other.stdout, "scripts-judge-strictly", standard="compiler")
    assert "--device cpu+inject:scale=1e-2" in other.stdout
    assert "--control cpu --device" in other.stdout


def test_the_fault_hang_waits_longer_than_any_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr("msprobe.precheck.side.machine.time", SimpleNamespace(sleep=waited.append))
    dump = write_dump(tmp_path, {"Torch.sin.0.forward": forward(TENSOR)})
    call("run_ut", "-api_info", dump, "-o", tmp_path, "--candidate", "cpu+inject:hang")
    assert waited == [3600]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("0.01", "--ms-atol is for a MindSpore dump"),
        ("0", "must be a number above 0"),
        ("nan", "must be a number above 0"),
    ],
)
def test_the_largest_difference_that_passes_is_chosen_of_mindspore_alone(tmp_path: Path, given: str, said: str) -> None:
    dump = write_dump(tmp_path, SINES)
    refused = call("run_ut", "-api_info", dump, "-o", tmp_path / "out", "--ms-atol", given)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert not (tmp_path / "out").exists()
