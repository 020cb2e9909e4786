"""Scripts of single calls as config_op.json asks for them, run in this process."""

from __future__ import annotations

import base64
import json
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from support.coded_texts import mentions
from support.command_line import call

from msprobe.messages import in_language, said
from msprobe.precheck.job import Task
from msprobe.precheck.torch.runner import runner

TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 3], "Max": 2.0, "Min": -2.0}
INPUT = {**TENSOR, "requires_grad": True}
LABELS = {**TENSOR, "dtype": "torch.int32", "shape": [4], "Max": 2, "Min": -100}
SOFT_LABELS = {**TENSOR, "Max": 1.0, "Min": 0.0}
OF_A_USER = """
import torch

@torch.library.custom_op("msprobe_of_tests::my_norm", mutates_args=())
def my_norm(x: torch.Tensor, power: int) -> torch.Tensor:
    if x.dtype is torch.float64:
        raise RuntimeError("no kernel")
    return x / x.norm(power)

def wide_norm(x, power):
    return x / x.norm(power)

class Square(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return gradient * x * (2.02 if x.dtype is torch.float32 else 2)

"""
CALLS = {
    "Ops.msprobe_of_tests_my_norm.0": ([TENSOR, {"type": "int", "value": 2}], TENSOR),
    "Function.Square.0": ([INPUT], TENSOR),
    "NPU.npu_fast_gelu.0": ([INPUT], TENSOR),
    "NPU.npu_dynamic_quant.0": ([INPUT], TENSOR),
    "Functional.dropout.0": ([INPUT, {"type": "float", "value": 0.5}], TENSOR),
    "Functional.dropout.1": ([INPUT, {"type": "float", "value": 0.5}, {"type": "bool", "value": False}], TENSOR),
    "Functional.scaled_dot_product_attention.0": (
        [TENSOR, TENSOR, TENSOR, None, {"type": "float", "value": 0.5}],
        TENSOR,
    ),
    "Torch.rand.0": ([{"type": "int", "value": 3}], TENSOR),
    "Torch.fft.0": ([INPUT], {**TENSOR, "dtype": "torch.complex64"}),
    "Functional.relu.0": ([INPUT], TENSOR),
    "Functional.bilinear.0": (
        [INPUT, INPUT, {**INPUT, "shape": [2, 3, 3]}],
        {**TENSOR, "dtype": "torch.bfloat16", "shape": [4, 2]},
    ),
    "Torch.hub.load.0": ([{"type": "str", "value": "a/b"}], TENSOR),
    "Torch.os.system.0": ([{"type": "str", "value": "true"}], TENSOR),
    "Tensor.share_memory_.0": ([TENSOR], TENSOR),
    "Ops.aten_save.0": ([TENSOR], TENSOR),
    "Distributed.all_reduce.0": ([TENSOR], TENSOR),
    "Torch.softmax.0": ([INPUT, {"type": "int", "value": -1}], TENSOR),
    "Functional.linear.0": ([INPUT, INPUT], {**TENSOR, "shape": [4, 4]}),
    "Tensor.__add__.0": ([INPUT, INPUT], TENSOR),
    "Functional.cross_entropy.0": ([INPUT, LABELS], {**TENSOR, "shape": []}),
    "Functional.cross_entropy.1": ([INPUT, SOFT_LABELS], {**TENSOR, "shape": []}),
}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    data: dict[str, Any] = {}
    for name, (args, result) in CALLS.items():
        data[f"{name}.forward"] = {"input_args": args, "input_kwargs": {}, "output": [result]}
        data[f"{name}.backward"] = {"input": [result], "output": []}
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"task": "statistics", "framework": "pytorch", "dump_data_dir": None, "data": data}))
    return path


NO_KERNEL = "no kernel"
#: A row of the table that a script prints.
CONTROL_ROW = "Scaled error of the control"


def config(dump: Path, **fields: Any) -> Path:
    path = dump.with_name("config_op.json")
    extract = str(dump.parent / "extracted" / "call.json")
    common = {"dump_json_path": str(dump), "api_name": "Torch.softmax.0", "extract_api_path": extract}
    path.write_text(json.dumps({**common, **fields}))
    return path


def run(script: Path, *words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", [str(script), "--device", "cpu", *words])
    with pytest.raises(SystemExit) as ending:
        runpy.run_path(str(script), run_name="__main__")
    return int(str(ending.value.code))


@pytest.mark.parametrize("api", list(CALLS)[-5:])
@pytest.mark.parametrize("propagation", ["forward", "backward"])
def test_a_script_has_the_labels_of_8_1_1_and_a_verdict(
    dump: Path, api: str, propagation: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(dump, api_name=api, propagation=propagation, iter_times=2)
    assert call("-f", "pytorch", "op_generate", "-i", path, "-o", dump.parent).returncode == 0
    script = dump.parent / f"{api}.{propagation}.py"
    assert run(script, monkeypatch=monkeypatch) == 0
    shown = capsys.readouterr().out
    for label in ("iter: 1:", "Compare result:", "Compare Standard", "Dtype of out_device", "Compare finished."):
        assert label in shown
    assert "Verdict: pass" in shown
    assert run(script, "--inject", "scale=0.1", monkeypatch=monkeypatch) == 1


def test_a_script_speaks_the_language_that_it_was_written_in(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MSPROBE_LANG", "zh")
    words = ("--dump", dump, "--api", "Torch.softmax.0", "-o", dump.parent, "--device", "cpu")
    assert call("op_generate", *words).returncode == 0
    monkeypatch.setenv("MSPROBE_LANG", "en")
    capsys.readouterr()
    assert run(dump.parent / "Torch.softmax.0.forward.py", "--inject", "nan@0", monkeypatch=monkeypatch) == 1
    shown = capsys.readouterr().out
    assert in_language(said("script-verdict", "error", "Torch.softmax.0", "forward", "cpu+inject:nan@0"), "zh") in shown
    assert in_language(said("only-on-device"), "zh") in shown


def test_scripts_have_labels_of_classes_and_some_that_are_ignored(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api, hard = "Functional.cross_entropy", []
    for number, values in ((0, "random"), (0, "recorded"), (1, "random"), (1, "recorded")):
        given = ("--dump", dump, "--api", f"{api}.{number}")
        if values == "random":
            given = ("-i", config(dump, api_name=f"{api}.{number}"))
        assert call("op_generate", *given, "-o", dump.parent).returncode == 0
        script = runpy.run_path(str(dump.parent / f"{api}.{number}.forward.py"))
        made = script["Call"](script["CALL"], dump.parent).args[1]
        if number:
            assert torch.allclose(made.sum(1), torch.ones(4))
        else:
            hard.append(made)
    for labels in hard:
        assert labels.dtype is torch.int64
        assert (labels == -100).sum() == 1
        assert labels[labels != -100].min() >= 0


def test_a_control_that_is_as_far_off_lets_an_error_pass(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--dump", dump, "--api", "Torch.softmax.0", "--control", "cpu", "-o", dump.parent)
    assert call("op_generate", *words).returncode == 0
    script = dump.parent / "Torch.softmax.0.forward.py"
    assert run(script, "--inject", "scale=0.1", monkeypatch=monkeypatch) == 1
    assert CONTROL_ROW in capsys.readouterr().out
    # A control in which the same is wrong.
    script.write_text(
        script.read_text().replace("side_of(options.control)", "side_of(options.control, options.inject)")
    )
    assert run(script, "--inject", "scale=0.1", monkeypatch=monkeypatch) == 0
    assert "as far off" in capsys.readouterr().out


def test_an_extracted_call_is_enough(dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("op_generate", "-i", config(dump), "-o", dump.parent).returncode == 0
    path = config(dump, dump_json_path="")
    dump.unlink()
    assert call("op_generate", "-i", path, "-o", dump.parent).returncode == 0
    assert run(dump.parent / "Torch.softmax.0.forward.py", monkeypatch=monkeypatch) == 0
    refused = call("op_generate", "-i", config(dump, dump_json_path="", data_mode="real_data"), "-o", dump.parent)
    assert refused.returncode == 2
    assert mentions(refused.stderr, "real-data-missing")


def test_a_call_that_is_refused_leaves_no_folder_behind(dump: Path) -> None:
    folder = dump.parent / "scripts"
    for api in ("Torch.rand.0", "Torch.none.0"):
        assert call("op_generate", "-i", config(dump, api_name=api), "-o", folder).returncode == 2
    assert not folder.exists()
    assert not (dump.parent / "extracted").exists()
    assert call("op_generate", "-i", config(dump), "-o", folder).returncode == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"propagation": "sideways"}, 'must be "forward" or "backward"'),
        ({"iter_times": 1001}, "a whole number from 1 to 1000"),
        ({"api_name": "Torch.nosuch.0"}, "has no API 'Torch.nosuch.0'"),
        ({"api_name": "softmax"}, "as Functional.softmax.0"),
        ({"data_mode": "x", "random_seed": "a"}, "random_seed"),
        ({"data_mode": "real_data"}, "has no values of tensors"),
        ({"dump_json_path": "", "extract_api_path": "none.json"}, "none.json"),
    ],
)
def test_a_mistake_in_config_op_is_one_line(dump: Path, fields: dict[str, Any], said: str) -> None:
    found = call("op_generate", "-i", config(dump, **fields), "-o", dump.parent)
    assert found.returncode == 2
    assert said in found.stderr
    assert found.stderr.count("\n") == 1


def test_what_8_1_1_has_extracted_is_read_with_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Its file has no "data", and whole paths of where the dump was."""
    dump, values = tmp_path / "rank", tmp_path / "rank" / "dump_tensor_data"
    values.mkdir(parents=True)
    np.save(values / "x.npy", np.full((4, 3), 7, np.float32))
    record = {"input_args": [{**INPUT, "data_name": "/where/it/was/x.npy"}], "input_kwargs": {}, "output": [TENSOR]}
    (dump / "call.json").write_text(json.dumps({"Functional.relu.0.forward": record}))
    fields = {"dump_json_path": "", "api_name": "Functional.relu.0", "extract_api_path": str(dump / "call.json")}
    path = tmp_path / "config_op.json"
    path.write_text(json.dumps({**fields, "data_mode": "real_data"}))
    assert call("-f", "pytorch", "op_generate", "-i", path, "-o", tmp_path).returncode == 0
    script = tmp_path / "Functional.relu.0.forward.py"
    assert base64.b64encode(np.full((4, 3), 7, np.float32).tobytes()).decode() in script.read_text()
    assert run(script, monkeypatch=monkeypatch) == 0
    (values / "x.npy").rename(tmp_path / "x.npy")
    gone = call("-f", "pytorch", "op_generate", "-i", path, "-o", tmp_path)
    assert gone.returncode == 2
    assert mentions(gone.stderr, "tensor-file-outside")


def made(dump: Path, api: str, *words: object) -> Path:
    """The script of one call."""
    found = call("op_generate", "--dump", dump, "--api", api, "-o", dump.parent, *words)
    assert found.returncode == 0, found.stderr
    return next(dump.parent.glob(f"{api}.*.py"))


@pytest.mark.parametrize(
    ("device", "status", "shown"),
    [
        ("cpu+threads=1+mkldnn=off+deterministic", 0, "on cpu+threads=1+mkldnn=off+deterministic)"),
        ("cpu+autocast=bf16", 0, "torch.bfloat16"),
        ("cpu+dtype=fp16", 0, "torch.float16"),
        ("cpu+inject:nan@11", 1, "NaN only on the device: nan instead of"),
        ("cpu+inject:swap", 1, "on cpu+inject:swap)"),
        ("plugin:kernels_of_tests:enlarged", 1, "on plugin:kernels_of_tests:enlarged"),
    ],
)
def test_a_script_does_all_that_its_device_is_asked_for(
    dump: Path, device: str, status: int, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    kernels = dump.parent / "kernels"
    kernels.mkdir()
    (kernels / "kernels_of_tests.py").write_text(
        "def enlarged(function, args, kwargs):\n    return function(*args, **kwargs) * 1.1\n"
    )
    monkeypatch.syspath_prepend(str(kernels))
    script = made(dump, "Functional.linear.0", "--device", device)
    monkeypatch.setattr(sys, "argv", [str(script)])
    with pytest.raises(SystemExit) as ending:
        runpy.run_path(str(script), run_name="__main__")
    assert ending.value.code == status
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status"),
    [((), 1), (("--device", "cpu+threads=1"), 0), (("--device", "cpu+threads=1", "--inject", "nan@0"), 1)],
)
def test_a_fault_stays_with_the_device_it_was_put_into(
    dump: Path, words: tuple[str, ...], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = made(dump, "Functional.linear.0", "--device", "cpu+inject:nan@11")
    assert run(script, *words, monkeypatch=monkeypatch) == status


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--device", "python:/x/python"), "start the script with /x/python"),
        (("--device", "recorded"), "is no device"),
        (("--device", "cpu+nosuch"), "'nosuch' is not known"),
        (("--device", "inject:abort"), "is no fault of a script"),
        (("--control", "cpu+inject:nan@0"), "leave its fault"),
        (("--reference", "none.py:f"), "of a file that exists"),
    ],
)
def test_what_no_script_can_do_is_refused_in_one_sentence(dump: Path, words: tuple[str, ...], said: str) -> None:
    found = call("op_generate", "--dump", dump, "--api", "Functional.linear.0", "-o", dump.parent, *words)
    assert found.returncode != 0
    assert said in found.stderr
    assert found.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--device", "cuda:77"), "cuda:77"),
        (("--device", "cpu+threads=0"), "'threads=0' is not known"),
        (("--inject", "nosuch"), "the fault 'nosuch' is not known"),
        (("--dtype", "int7"), "--dtype 'int7' is none of"),
        (("--load", "nosuch_module"), "nosuch_module"),
    ],
)
def test_a_script_that_cannot_run_says_why_and_ends_with_2(
    dump: Path, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run(made(dump, "Functional.linear.0"), *words, monkeypatch=monkeypatch) == 2
    assert said in capsys.readouterr().err


def test_kernels_and_functions_of_a_user_are_loaded(dump: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    kernels = dump.parent / "msprobe_kernels_of_tests.py"
    kernels.write_text(OF_A_USER)
    norm = made(dump, "Ops.msprobe_of_tests_my_norm.0")
    assert run(norm, monkeypatch=monkeypatch) == 2
    assert mentions(capsys.readouterr().err, "operator-not-registered")
    norm = made(dump, "Ops.msprobe_of_tests_my_norm.0", "--load", kernels)
    assert run(norm, monkeypatch=monkeypatch) == 2
    shown = capsys.readouterr().err
    assert mentions(shown, "reference-cannot-be-run")
    assert NO_KERNEL in shown
    assert run(norm, "--reference", f"{kernels}:wide_norm", monkeypatch=monkeypatch) == 0
    alone = call("op_generate", "--dump", dump, "--api", "Function.Square.0", "-o", dump.parent)
    assert alone.returncode == 2
    assert mentions(alone.stderr, "no-script-of-function-alone")
    square = made(dump, "Function.Square.0", "--load", kernels, "--propagation", "backward")
    assert run(square, monkeypatch=monkeypatch) == 1
    # The same by the check of a whole dump: a kernel of a user does not excuse itself.
    task = Task(str(dump), candidate="cpu", load=str(kernels), operators=(("wide", f"{kernels}:wide_norm", ""),))
    found = {name: runner(task).run(name).result[1:3] for name in list(CALLS)[:2]}
    assert found["Function.Square.0"] == ["pass", "error"]
    assert found["Ops.msprobe_of_tests_my_norm.0"] == ["SKIP", "SKIP"]


def test_fused_functions_of_torch_npu_bring_their_reference(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    script = made(dump, "NPU.npu_fast_gelu.0")
    assert run(script, monkeypatch=monkeypatch) == 2
    assert mentions(capsys.readouterr().err, "torch-npu-lacks-function", name="npu_fast_gelu")
    # A kernel with a result more than the reference, which is right for positive numbers alone.
    module = ModuleType("torch_npu")
    module.npu_fast_gelu = lambda x: (x / (1 + torch.exp(-1.702 * x)), None)  # type: ignore[attr-defined]
    module.npu_dynamic_quant = lambda x: x.round()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch_npu", module)
    assert run(script, monkeypatch=monkeypatch) == 0
    module.npu_fast_gelu = torch.relu  # type: ignore[attr-defined]
    assert run(script, monkeypatch=monkeypatch) == 1
    unknown = made(dump, "NPU.npu_dynamic_quant.0")
    assert run(unknown, monkeypatch=monkeypatch) == 2
    assert mentions(capsys.readouterr().err, "script-needs-reference", name="npu_dynamic_quant")


def test_a_call_that_was_autocast_is_so_in_its_script(dump: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """And judged as one: its gradients have the type of its arguments, and the rounding of the half type."""
    script = made(dump, "Functional.bilinear.0", "--propagation", "backward")
    assert '"autocast": "bfloat16"' in script.read_text()
    assert run(script, monkeypatch=monkeypatch) == 0
    assert run(script, "--inject", "scale=1", monkeypatch=monkeypatch) == 1
    assert '"autocast": null' in made(dump, "Functional.linear.0").read_text()


@pytest.mark.parametrize("api", ["Functional.dropout.0", "Torch.rand.0"])
def test_calls_that_draw_random_numbers_get_no_script(dump: Path, api: str) -> None:
    found = call("op_generate", "--dump", dump, "--api", api, "-o", dump.parent)
    assert found.returncode == 2
    assert mentions(found.stderr, "no-script-of-random")


@pytest.mark.parametrize("api", ["Functional.dropout.1", "Functional.scaled_dot_product_attention.0", "Torch.fft.0"])
def test_calls_that_draw_nothing_and_calls_named_like_a_module_pass(
    dump: Path, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(made(dump, api), monkeypatch=monkeypatch) == 0
    assert runner(Task(str(dump), candidate="cpu")).run(api).result[1] == "pass"


@pytest.mark.parametrize("api", ["Torch.hub.load.0", "Torch.os.system.0", "Tensor.share_memory_.0", "Ops.aten_save.0"])
def test_names_of_a_stranger_get_no_script(dump: Path, api: str) -> None:
    found = call("op_generate", "--dump", dump, "--api", api, "-o", dump.parent)
    assert found.returncode == 2
    assert any(mentions(found.stderr, name, call=api) for name in ("no-script-of-unlisted", "no-script-of-api"))
    assert not list(dump.parent.glob("*.py"))


def test_a_type_that_no_script_is_made_of_has_its_reason(dump: Path) -> None:
    found = call("op_generate", "--dump", dump, "--api", "Distributed.all_reduce.0", "-o", dump.parent)
    assert found.returncode == 2
    assert mentions(found.stderr, "script-collective")


def test_kernels_that_stand_in_for_the_reference_are_refused(
    dump: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = dump.with_name("doubled_softmax.py")
    kernels.write_text(
        "import torch\noriginal = torch.softmax\n"
        "torch.softmax = lambda x, *rest: original(x, *rest) * (2 if x.dtype in TYPES else 1)\n"
        "TYPES = (torch.float32, torch.float64)\n"
    )
    script = made(dump, "Torch.softmax.0", "--load", kernels)
    for types, status in (("(torch.float32, torch.float64)", 2), ("(torch.float32,)", 1)):
        kernels.write_text(kernels.read_text().rpartition("TYPES")[0] + f"TYPES = {types}\n")
        monkeypatch.setattr(torch, "softmax", torch.softmax)
        monkeypatch.delitem(sys.modules, "doubled_softmax", raising=False)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        assert run(script, monkeypatch=monkeypatch) == status
        monkeypatch.undo()
    assert mentions(capsys.readouterr().err, "loaded-kernels-replace-reference")


def test_a_call_is_named_as_its_record_is_and_a_part_of_its_name_is_enough_to_be_reported_it(dump: Path) -> None:
    words = ("op_generate", "--dump", dump, "-o", dump.parent)
    assert call(*words, "--api", "Torch.softmax.0.backward").returncode == 0
    assert (dump.parent / "Torch.softmax.0.backward.py").exists()
    assert mentions(call(*words, "--api", "softmax").stderr, "near-calls", names="Torch.softmax.0")
