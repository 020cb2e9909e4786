"""The pre-check as its users run it: a dump of a real training, real worker processes, real files."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import forked
from support.coded_texts import mentions
from support.command_line import Completed, call
from support.prechecked import InThisProcess
from torch import nn

from msprobe.capture.torch import private
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.precheck import pool, sample_check
from msprobe.precheck.torch import samples
from msprobe.pytorch import PrecisionDebugger, check_api


@pytest.fixture(autouse=True)
def _few_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is about several processes has them: all others have one worker inside of the test's own process."""
    if request.node.originalname == "test_workers_change_nothing_of_the_files":
        request.getfixturevalue("forked_workers")
    else:
        monkeypatch.setattr(pool, "Worker", InThisProcess)


class Small(nn.Module):
    """A bit of everything: indices, convolution, attention, in-place writes, masks, half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, 8)
        self.norm = nn.LayerNorm(8)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.out = nn.Linear(8, 30)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.embedding(tokens))
        x = x + self.conv(x.transpose(1, 2)).transpose(1, 2)
        x = torch.softmax(x @ x.transpose(-1, -2), -1) @ x
        positive = x > 0
        x = torch.where(positive, x, x * 0.1)
        x.mul_(2.0)
        low = x.to(torch.bfloat16)
        x = x + (low @ low.transpose(1, 2)).float().mean() + torch.topk(x, 3, -1)[0].sum() * 0.01
        return self.out(x)


def record(folder: Path, task: str) -> Path:
    torch.manual_seed(0)
    model = Small()
    PrecisionDebugger.reset()
    debugger = PrecisionDebugger(dump_path=str(folder), task=task, level="L1")
    debugger.start(model=model)
    tokens = torch.randint(0, 30, (2, 6))
    nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()
    debugger.stop()
    debugger.step()
    PrecisionDebugger.reset()
    return next(folder.glob("step0/*/dump.json"))


@pytest.fixture(scope="module")
def statistics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("statistics"), "statistics")


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("tensor"), "tensor")


def rows(folder: Path, kind: str = "result", tool: str = "accuracy_checking") -> list[list[str]]:
    (path,) = folder.glob(f"{tool}_{kind}_*.csv")
    return read(path)


def read(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def checked(dump: Path, folder: Path, *words: object, command: str = "run_ut") -> Completed:
    found = call(command, "-api_info", dump, "-o", folder, *words)
    assert found.returncode == 0, found.stderr
    return found


def test_a_healthy_dump_has_one_passing_row_for_each_forward_entry(statistics: Path, tmp_path: Path) -> None:
    checked(statistics, tmp_path)
    keys = [name.removesuffix(".forward") for name in json.loads(statistics.read_text())["data"] if "forward" in name]
    found = rows(tmp_path)
    assert found[0] == ["API name", "Forward Test Success", "Backward Test Success", "Message"]
    assert [row[0] for row in found[1:]] == keys
    by_name = {row[0]: row for row in found}
    assert by_name["Tensor.to.0"][1:3] == ["SKIP", "SKIP"]
    assert by_name["Tensor.__gt__.0"][1:3] == ["pass", " "]
    assert by_name["Torch.topk.0"][1:3] == ["pass", "pass"]
    # As in files of 8.1.1, the number of a gradient is that of its argument.
    details = {row[0]: row[21] for row in rows(tmp_path, "details")}
    assert [details[f"Functional.embedding.0.backward.output.{place}"] for place in (0, 1)] == ["SKIP", "pass"]
    assert all(row[1] in ("pass", "SKIP") and row[2] in ("pass", "SKIP", " ") for row in found[1:])
    assert {row[1] for row in found[1:] if not row[0].startswith("Tensor.to.")} == {"pass"}


def test_workers_change_nothing_of_the_files(statistics: Path, tmp_path: Path) -> None:
    checked(statistics, tmp_path / "1", "-n", 1, command="multi_run_ut")
    checked(statistics, tmp_path / "2", "-n", 2, command="multi_acc_check")
    for kind in ("result", "details"):
        assert rows(tmp_path / "1", kind) == rows(tmp_path / "2", kind)


def test_a_fault_of_a_thousandth_is_an_error_of_every_float_api(statistics: Path, tmp_path: Path) -> None:
    found = checked(statistics, tmp_path, "--candidate", "inject:scale=1e-3", "--top", 2, command="acc_check")
    details = rows(tmp_path, "details")[1:]
    for row in details:
        if row[21] != "SKIP" and row[2] in ("torch.float32", "torch.bool", "torch.int64"):
            # A gradient that is zero stays it.
            expected = "error" if row[2] == "torch.float32" and float(row[5].strip() or 1) > 0 else "pass"
            assert row[21] == expected, row
    assert "reproduce: msprobe op_generate --dump" in found.stdout


@pytest.mark.parametrize("fault", ["tf32", "nan@0", "drop-tail"])
def test_injected_faults_are_found(statistics: Path, tmp_path: Path, fault: str) -> None:
    checked(statistics, tmp_path, "--candidate", f"inject:{fault}")
    by_name = {row[0]: row for row in rows(tmp_path)}
    for name in ("Functional.linear.0", "Functional.layer_norm.0", "Functional.conv1d.0", "Torch.softmax.0"):
        assert by_name[name][1] == "error"
    if fault == "nan@0":
        messages = [row[22] for row in rows(tmp_path, "details") if row[21] == "error"]
        assert any(mentions(one, "special-values-differ", what="NaN", where=said("only-on-device")) for one in messages)
        assert any("[0" in one for one in messages)


def test_healthy_half_precision_is_a_warning_of_8_1_1_and_passes_strictly(statistics: Path, tmp_path: Path) -> None:
    for standard, status in (("8.1.1", "Warning"), ("strict", "pass"), ("26.2", "warning")):
        checked(statistics, tmp_path / standard, "--standard", standard)
        by_name = {row[0]: row for row in rows(tmp_path / standard)}
        assert by_name["Tensor.__matmul__.2"][1] == status


def test_recorded_values_are_used_and_a_missing_file_costs_its_call_only(values: Path, tmp_path: Path) -> None:
    (values.parent / "dump_tensor_data" / "Functional.conv1d.0.forward.input.1.pt").unlink()
    checked(values, tmp_path)
    by_name = {row[0]: row for row in rows(tmp_path)}
    assert by_name["Functional.conv1d.0"][1:3] == ["SKIP", "SKIP"]
    assert "Functional.conv1d.0.forward.input.1.pt" in by_name["Functional.conv1d.0"][3]
    assert by_name["Functional.linear.0"][1:3] == ["pass", "pass"]


def test_what_was_found_before_a_check_was_cut_counts(statistics: Path, tmp_path: Path) -> None:
    words = ("-api_info", statistics, "-o", tmp_path, "--candidate", "inject:nan@0", "--control", "cpu")
    call("run_ut", *words)
    (result,) = tmp_path.glob("accuracy_checking_result_*.csv")
    compared = rows(tmp_path, tool="api_precision_compare")
    (summary,), (page,) = tmp_path.glob("*summary*.txt"), tmp_path.glob("*summary*.html")
    before = summary.read_text(), page.read_text()
    assert '<td class="error">Functional.linear.0.forward.output.0</td>' in before[1]
    result.write_bytes(b"".join(result.read_bytes().splitlines(keepends=True)[:-2]))
    # What is left to do does not fail.
    assert call("run_ut", *words[:4], "--control", "cpu", "-csv_path", result, "--fail-on", "error").returncode == 1
    again = summary.read_text()
    assert (before[0].splitlines()[0], again.splitlines()[0]) == (
        "forward: 2 pass, 26 error, 2 skip",
        "forward: 4 pass, 24 error, 2 skip",
    )
    assert rows(tmp_path, tool="api_precision_compare")[:-2] == compared[:-2]


def test_lists_choose_what_is_checked(statistics: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"run_ut": {"white_list": ["linear", "softmax"], "black_list": ["softmax"]}}))
    checked(statistics, tmp_path, "-config", config)
    passed = [row[0] for row in rows(tmp_path)[1:] if row[1] == "pass"]
    assert passed == ["Functional.linear.0"]


def test_error_data_holds_arguments_of_both_forms_and_loads_safely(statistics: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"run_ut": {"error_data_path": str(tmp_path), "white_list": ["linear"]}}))
    checked(statistics, tmp_path, "-config", config, "-save_error_data", "--candidate", "inject:nan@0")
    (folder,) = tmp_path.glob("ut_error_data*")
    names = {path.name for path in folder.iterdir()}
    assert {f"Functional.linear.0.forward.input.{place}.pt" for place in range(3)} <= names
    assert "Functional.linear.0.backward.output.device.0.pt" in names
    assert torch.load(folder / "Functional.linear.0.forward.output.device.0.pt", weights_only=True).isnan().any()


def test_a_control_gives_the_verdict_of_three_and_a_check_agrees_with_itself(statistics: Path, tmp_path: Path) -> None:
    checked(statistics, tmp_path, "--control", "cpu+threads=1")
    found = rows(tmp_path, tool="api_precision_compare")
    assert found[0] == ["API Name", "Forward Test Success", "Backward Test Success", "Message"]
    assert {row[1] for row in found[1:]} <= {"pass", "SKIP", "error"}
    (details,) = tmp_path.glob("accuracy_checking_details_*.csv")
    again = tmp_path / "again"
    assert call("api_precision_compare", "-npu", details, "-gpu", details, "-o", again).returncode == 0
    benchmark = [row for row in rows(again, "details", "api_precision_compare") if row[26] == "标杆比对法"]
    assert benchmark
    assert {row[25] for row in benchmark} == {"pass"}
    assert {row[1] for row in rows(again, tool="api_precision_compare")[1:]} <= {"pass", "SKIP"}


def test_errors_that_the_control_has_too_count_nowhere(statistics: Path, tmp_path: Path) -> None:
    fault = "cpu+inject:scale=1e-2"
    found = checked(statistics, tmp_path, "--candidate", fault, "--control", fault, "--fail-on", "error")
    assert {row[1] for row in rows(tmp_path)[1:]} >= {"error"}
    assert {row[1] for row in rows(tmp_path, tool="api_precision_compare")[1:]} == {"pass", "SKIP"}
    (summary,), (page,) = tmp_path.glob("*summary*.txt"), tmp_path.glob("*summary*.html")
    assert summary.read_text().splitlines()[0] == "forward: 28 pass, 2 skip"
    assert "No call failed" in page.read_text()
    assert "APIs with errors" not in found.stdout


def test_a_candidate_that_is_worse_than_the_control_is_an_error_by_each_standard(
    statistics: Path, tmp_path: Path
) -> None:
    checked(statistics, tmp_path / "good")
    checked(statistics, tmp_path / "bad", "--candidate", "inject:scale=0.02")
    (bad,), (good,) = ((tmp_path / side).glob("accuracy_checking_details_*.csv") for side in ("bad", "good"))
    assert call("api_precision_compare", "-npu", bad, "-gpu", good, "-o", tmp_path).returncode == 0
    found = rows(tmp_path, "details", "api_precision_compare")[1:]
    # 8.1.1 lets ULP errors pass whose share is small; a fault of two hundredths is in every element.
    labels = {row[26] for row in found if row[25] == "error"}
    assert labels >= {"标杆比对法", "ULP误差比对法", "绝对阈值法", "二进制一致法", "双千指标法"}
    twice = tmp_path / "twice.csv"
    twice.write_bytes(good.read_bytes() + good.read_bytes().splitlines(keepends=True)[2])
    wrong = call("api_precision_compare", "-npu", bad, "-gpu", twice, "-o", tmp_path)
    assert wrong.returncode == 2
    assert mentions(wrong.stderr, "details-rows-twice", twice="Functional.embedding.0.forward.output.0", more="")
    lacking = tmp_path / "lacking.csv"
    lacking.write_text("API Name,Status\n")
    assert "DEVICE Dtype" in call("api_precision_compare", "-npu", lacking, "-gpu", good, "-o", tmp_path).stderr


def test_the_script_of_a_call_says_a_verdict_and_finds_the_smallest_call(statistics: Path, tmp_path: Path) -> None:
    words = ("--dump", statistics, "--api", "Functional.linear.0", "-o", tmp_path)
    # Values in files are made smaller like those inside.
    made = call("op_generate", *words, "--propagation", "backward", "--data-in-files")
    assert made.returncode == 0
    assert f"python {tmp_path / 'Functional.linear.0.backward.py'} --minimize" in made.stdout
    script = tmp_path / "Functional.linear.0.backward.py"
    healthy = subprocess.run([sys.executable, script, "--device", "cpu"], capture_output=True, text=True, check=False)
    assert healthy.returncode == 0, healthy.stderr
    assert "Maximum ULP Error" in healthy.stdout
    assert "Verdict: pass" in healthy.stdout
    wrong = ("--device", "cpu", "--inject", "scale=1e-3", "--minimize")
    broken = forked.run(str(script), *wrong, cwd=tmp_path)
    assert broken.returncode == 1
    assert "Smallest failing call: Functional.linear.0 with shapes [[1, 1, 1], [1, 1]]" in broken.stdout
    smallest = forked.run(str(script.with_suffix(".min.py")), cwd=tmp_path)
    assert smallest.returncode == 1
    missing = call("op_generate", *words, "--load", "nowhere.py")
    assert missing.returncode == 2
    assert mentions(missing.stderr, "load-missing", what="nowhere.py")


def test_reproduce_writes_the_script_of_the_call_that_a_verdict_names(statistics: Path, tmp_path: Path) -> None:
    finding = {"entry": "Torch.softmax.0.forward", "kind": "structure", "step": 0, "rank": "rank", "evidence": {}}
    verdict = tmp_path / "verdict.json"
    verdict.write_text(json.dumps({"candidate": str(statistics.parents[2]), "findings": [finding]}))
    made = call("reproduce", verdict, "-o", tmp_path)
    assert made.returncode == 0
    assert (tmp_path / "Torch.softmax.0.forward.py").is_file()
    for kind, is_the_call in (("data", False), ("initial_weights", False), ("computation", True)):
        verdict.write_text(
            json.dumps({"candidate": str(statistics.parents[2]), "findings": [{**finding, "kind": kind}]})
        )
        found = call("reproduce", verdict, "-o", tmp_path).stdout
        assert ("--minimize" in found) is is_the_call, kind
    wrong = call("reproduce", verdict, "--finding", 2, "-o", tmp_path)
    assert wrong.returncode == 2
    assert "has the findings 1 to 1" in wrong.stderr


def test_overflow_on_both_sides_is_normal_and_on_one_is_not(tmp_path: Path, capsys: Any) -> None:
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "requires_grad": False}
    data = {
        "Torch.exp.0.forward": {"input_args": [{**tensor, "Max": 1e30, "Min": 1e30}], "input_kwargs": {}, "output": []},
        "Torch.linalg.norm.0.forward": {"input_args": [{**tensor, "Max": 2.0, "Min": 1.0}], "input_kwargs": {}},
    }
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"task": "statistics", "framework": "pytorch", "dump_data_dir": None, "data": data}))
    shown = call("run_overflow_check", "-api_info", dump).stdout
    assert mentions(shown, "overflow-is-normal", key="Torch.exp.0")
    assert mentions(shown, "overflow-is-normal", key="Torch.linalg.norm.0")
    shown = call("run_overflow_check", "-api_info", dump, "--candidate", "inject:nan@0").stdout
    assert mentions(shown, "overflow-is-abnormal", key="Torch.linalg.norm.0")
    counts = re.findall(
        r"\b\d\b(?: \([\w.]+\))?", next(line for line in shown.splitlines() if "(Torch.linalg.norm.0)" in line)
    )
    assert counts == ["2", "1 (Torch.linalg.norm.0)", "1 (Torch.exp.0)", "0"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-d", "0", "0"], "must be unique"),
        (["-d", "-1"], "must be >= 0"),
        (["--candidate", "gpu"], "is no device"),
        (["-csv_path", "x.csv"], "accuracy_checking_result_<14 digits>.csv"),
        (["-config", "missing.json"], "does not exist"),
    ],
)
def test_bad_words_get_one_line(statistics: Path, tmp_path: Path, words: list[str], expected: str) -> None:
    found = call("run_ut", "-api_info", statistics, "-o", tmp_path, *words)
    assert found.returncode != 0
    assert expected in found.stderr
    assert found.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"white_list": "linear"}, "white_list"),
        ({"white_list": ["nosuch"]}, '"nosuch"'),
        ({"error_data_path": "/no/such"}, "/no/such"),
        ({"port": 70000}, "70000"),
        ({"host": "300.1.1.1"}, "300.1.1.1"),
        ({"is_online": "yes"}, "is_online"),
        ({"rank_list": ["a"]}, "rank_list"),
        ({"tls_path": "."}, "server.key"),
    ],
)
def test_a_mistake_in_the_settings_names_its_field(
    statistics: Path, tmp_path: Path, section: dict[str, Any], expected: str
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"run_ut": section}))
    found = call("run_ut", "-api_info", statistics, "-config", config, "-o", tmp_path / "out")
    assert found.returncode == 2
    assert expected in found.stderr
    assert next(iter(section)) in found.stderr


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "dump.json"),
        ("[1]", "dump.json"),
        ('{"level": "L2", "data": {"aten.add.0.forward": {}}}', "L2, which records kernels"),
        ('{"task": "statistics"}', "data"),
        ('{"data": {"X.relu.0.sideways": {}}}', "X.relu.0.sideways"),
    ],
)
def test_a_broken_dump_is_reported_in_one_line(tmp_path: Path, content: str, expected: str) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(content)
    found = call("run_ut", "-api_info", dump, "-o", tmp_path / "out")
    assert found.returncode == 2
    assert expected in found.stderr
    assert "Traceback" not in found.stderr


def test_check_api_judges_a_call_of_a_program() -> None:
    x, weight = torch.randn(4, 5, requires_grad=True), torch.randn(3, 5, requires_grad=True)
    healthy = check_api(nn.functional.linear, x, weight, bias=None)
    assert healthy
    assert (healthy.forward, healthy.backward, len(healthy.rows)) == ("pass", "pass", 3)
    wrong = check_api(nn.functional.linear, x, weight, candidate="inject:tf32")
    assert not wrong
    assert str(healthy) == "forward: pass, backward: pass"
    assert "of 12 elements are off" in str(wrong)
    assert x.grad is None


def test_check_api_takes_modules_and_leaves_random_numbers_alone() -> None:
    before = torch.get_rng_state()
    lstm = nn.LSTM(4, 3)
    given = {name: one.clone() for name, one in lstm.state_dict().items()}
    torch.set_rng_state(before)
    found = check_api(lstm, torch.ones(2, 1, 4))
    assert found.backward == "pass"
    assert len(found.rows) == 3 + len(given) + 1  # results, gradients of parameters, and of what needs none
    assert check_api(nn.Dropout(0.5), torch.ones(200)).forward == "pass"
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(one, given[name]) for name, one in lstm.state_dict().items())


@pytest.mark.parametrize(
    ("function", "words", "expected"),
    [
        ("linear", {}, "found 'linear'"),
        (torch.sin, {"candidate": "python:/x"}, "run_ut can use a different"),
        (torch.sin, {"candidate": "recorded"}, "is no device"),
        (torch.sin, {"standard": "x"}, "is none of strict"),
        (torch.sin, {"standard": "compiler"}, "which need no control"),
    ],
)
def test_check_api_refuses_what_it_cannot_do(function: Any, words: dict[str, str], expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        check_api(function, torch.ones(2), **words)


class FewSamples:
    """What torch's own entries for operators have that is used here; importing them all takes some ten seconds."""

    aliases = ()
    supports_autograd = True

    def __init__(self, name: str, function: Any) -> None:
        self.name, self.op, self.formatted_name = name, function, name.replace(".", "_")

    def supported_dtypes(self, device: str) -> list[torch.dtype]:
        return [torch.float32, torch.bfloat16]

    supported_backward_dtypes = supported_dtypes

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool) -> Any:
        for size in (3, 4):
            first, second = (torch.randn(size, size).to(dtype).requires_grad_(requires_grad) for _ in range(2))
            yield SimpleNamespace(input=first, args=(second,), kwargs={})


def test_where_torch_has_no_samples_of_its_own_simple_ones_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "SAMPLES_MODULE", "torch.testing._internal.no_such_module")
    monkeypatch.setattr(sample_check, "Worker", InThisProcess)
    words = ("op_check", "--ops", "linear,matmul,log,floor_divide,conv2d", "--dtypes", "fp32,bf16", "--candidate")
    healthy = call(*words, "cpu", "-o", tmp_path / "healthy")
    assert healthy.returncode == 0, healthy.stderr
    assert mentions(healthy.stderr + healthy.stdout, "samples-missing")
    found = rows(tmp_path / "healthy")[1:]
    assert {row[1] for row in found} == {"pass"}
    by_name = {row[0].partition(".")[2].rpartition(".")[0]: row[2].strip() for row in found}
    wanted = ("matmul", "nn_functional_linear", "nn_functional_conv2d", "log", "floor_divide")
    assert {name for name in by_name if name.endswith("_float32")} >= {f"{name}_float32" for name in wanted}
    assert (by_name["matmul_bfloat16"], by_name["floor_divide_bfloat16"]) == ("pass", "")
    bad = call(*words, "cpu+inject:scale=0.1", "-o", tmp_path / "bad")
    assert bad.returncode == 1
    statuses = {row[0]: row[1] for row in rows(tmp_path / "bad")[1:]}
    assert {status for name, status in statuses.items() if "float32" in name and "divide" not in name} == {"error"}


def test_samples_are_checked_without_a_dump_and_reproduced_by_what_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [FewSamples("nn.functional.linear", nn.functional.linear), FewSamples("mul", torch.mul)]
    monkeypatch.setattr(samples, "operators", lambda: known)
    monkeypatch.setattr(sample_check, "Worker", InThisProcess)
    words = ("op_check", "--ops", "linear,mul", "--dtypes", "fp32,bf16", "--control", "cpu")
    healthy = call(*words, "-o", tmp_path / "healthy")
    assert healthy.returncode == 0, healthy.stderr
    assert "forward: 8 pass" in healthy.stdout
    assert "api_precision_compare_result" in healthy.stdout
    (summary,) = (tmp_path / "healthy").glob("accuracy_checking_summary_*.txt")
    assert summary.with_suffix(".html").is_file()
    assert mentions(healthy.stdout, "no-accelerator")
    bad = call(*words, "--candidate", "cpu+inject:scale=1e-1", "-o", tmp_path / "bad")
    assert bad.returncode == 1
    compared = rows(tmp_path / "bad", "result", "api_precision_compare")[1:]
    assert {row[1] for row in compared} == {"error"}
    fault = "cpu+inject:scale=1e-1"
    allowed = call(*words[:-1], fault, "--candidate", fault, "-o", tmp_path / "same")
    assert allowed.returncode == 0
    assert "forward: 8 pass" in allowed.stdout
    command = bad.stdout.partition("reproduce: msprobe ")[2].splitlines()[0]
    again = call(*shlex.split(command), "-o", tmp_path / "again")
    assert again.returncode == 1, again.stderr
    missing = call("op_check", "--ops", "linea", "-o", tmp_path)
    assert mentions(missing.stderr, "near-samples", names="linear")
