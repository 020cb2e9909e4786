"""Passes of leaf modules are the calls that the modules make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.coded_texts import mentions
from support.command_line import call
from torch import nn

from msprobe.messages import said
from msprobe.precheck.arguments import ArgumentTensor, Items, Plain, UnreadableArgumentError
from msprobe.precheck.modules import RecordedPass, function_of, passes_of
from msprobe.precheck.torch.functions import find_function

X = torch.linspace(-2, 3, 2 * 6 * 8).reshape(2, 6, 8)


@pytest.mark.parametrize(
    ("module", "given"),
    [
        (nn.Linear(8, 3), [X]),
        (nn.Linear(8, 3, bias=False), [X]),
        (nn.Bilinear(8, 8, 2), [X, X]),
        (nn.Embedding(9, 4), [torch.arange(9)]),
        (nn.LayerNorm(8), [X]),
        (nn.LayerNorm((6, 8), bias=False), [X]),
        (nn.RMSNorm(8), [X]),
        (nn.BatchNorm1d(6), [X]),
        (nn.GroupNorm(2, 6), [X]),
        (nn.InstanceNorm1d(6), [X]),
        (nn.InstanceNorm2d(2, affine=True), [X.unsqueeze(0)]),
        (nn.GRU(8, 5, num_layers=2), [X]),
        (nn.GRU(8, 5, bidirectional=True, bias=False), [X]),
        (nn.GRU(8, 5, batch_first=True), [X, torch.ones(1, 2, 5)]),
        (nn.GRU(8, 5, batch_first=True), [X]),
        (nn.LSTM(8, 5, batch_first=True), [X]),
        (nn.LSTM(8, 5, num_layers=2, bidirectional=True), [X]),
        (nn.LSTM(8, 5, batch_first=True), [X, (torch.ones(1, 2, 5), torch.ones(1, 2, 5))]),
        (nn.RNN(8, 5), [X]),
        (nn.Conv1d(6, 4, 3, padding=1), [X]),
        (nn.Conv1d(6, 6, 4, stride=2, groups=3, bias=False), [X]),
        (nn.Conv2d(2, 4, 3, stride=2, padding=1), [X.unsqueeze(0)]),
        (nn.Conv1d(6, 4, 8, stride=8), [X]),
        (nn.Softmax(-1), [X]),
        (nn.PReLU(6), [X]),
        *(
            (kind(), [X])
            for kind in (nn.Tanh, nn.Sigmoid, nn.ReLU, nn.SiLU, nn.Hardsigmoid, nn.LogSigmoid, nn.Softsign)
        ),
        *(
            (kind(), [X])
            for kind in (nn.GELU, nn.ELU, nn.Softplus, nn.GLU, nn.LeakyReLU, nn.Hardtanh, nn.Mish, nn.ReLU6)
        ),
        (nn.MSELoss(), [X, X * 2]),
        (nn.CrossEntropyLoss(), [X[0], torch.arange(6)]),
        (nn.BCEWithLogitsLoss(), [X, torch.ones_like(X)]),
    ],
    ids=lambda value: repr(value) if isinstance(value, nn.Module) else "",
)
def test_a_pass_is_the_call_that_the_module_makes(module: nn.Module, given: list[Any]) -> None:
    tensors: dict[int, torch.Tensor] = {}

    def info(tensor: Any) -> Any:
        if isinstance(tensor, tuple):
            return Items(tuple(map(info, tensor)))
        found = ArgumentTensor(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        tensors[id(found)] = tensor
        return found

    def value(argument: Any) -> Any:
        if isinstance(argument, Items):
            return [value(one) for one in argument.items]
        if isinstance(argument, Plain):
            return argument.value
        return tensors[id(argument)] if id(argument) in tensors else torch.zeros(argument.shape)

    result = module(*given)
    parameters = {name: info(one) for name, one in module.named_parameters()}
    record = RecordedPass(tuple(map(info, given)), {}, parameters, tuple(map(info, _flat(result))))
    made = function_of(f"Module.m.{type(module).__name__}.0", record)
    function = find_function(made.prefix, made.name)
    again = function(*map(value, made.args), **{name: value(one) for name, one in made.kwargs.items()})
    if isinstance(again, tuple) and isinstance(result[1], tuple):
        again = (again[0], again[1:])  # the states of a LSTM
    torch.testing.assert_close(again, result, rtol=0, atol=0)


def _flat(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [one for part in result for one in _flat(part)]


def test_only_leaves_are_passes_and_unknown_ones_are_reported() -> None:
    names = [
        "Module.block.Block.forward.0",
        "Module.block.fc.Linear.forward.0",
        "Module.block.fc.Linear.forward.1",
        "Module.block.fc.Linear.backward.1",
        "Module.block2.Odd.forward.0",
        "Functional.linear.0.forward",
    ]
    assert list(passes_of(names)) == ["Module.block.fc.Linear.0", "Module.block.fc.Linear.1", "Module.block2.Odd.0"]
    with pytest.raises(UnreadableArgumentError) as refused:
        function_of("Module.block2.Odd.0", RecordedPass((), {}, {}, ()))
    assert refused.value.args == (said("module-cannot-be-made", "Odd"),)


@pytest.mark.usefixtures("forked_workers")
def test_modules_of_level_l0_are_checked_when_asked_for(tmp_path: Path) -> None:
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "Max": 2.0, "Min": -2.0, "requires_grad": True}
    weight = {**tensor, "type": "torch.nn.parameter.Parameter", "shape": [3, 8]}
    result = {**tensor, "shape": [2, 3]}
    data = {
        "Module.fc.Linear.forward.0": {
            "input_args": [{**tensor, "shape": [2, 8]}],
            "input_kwargs": {},
            "parameters": {"weight": weight},
            "output": [result],
        },
        "Module.odd.Odd.forward.0": {"input_args": [result], "input_kwargs": {}, "output": [result]},
        "Module.fc.Linear.backward.0": {"input": [result], "output": []},
    }
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"task": "statistics", "framework": "pytorch", "dump_data_dir": None, "data": data}))
    for command in ("run_ut", "run_overflow_check"):
        without = call(command, "-api_info", dump, *(("-o", tmp_path / "without") if command == "run_ut" else ()))
        assert without.returncode == 2
        assert "L0" in without.stderr
        assert ("--modules" in without.stderr) == (command == "run_ut")
    assert not (tmp_path / "without").exists()
    none = dump.with_name("none.json")
    none.write_text(json.dumps({"framework": "pytorch", "data": {"Module.net.Net.backward.0": {"input": [result]}}}))
    refused = call("run_ut", "-api_info", none, "-o", tmp_path, "--modules")
    assert (refused.returncode, refused.stdout) == (2, "")
    found = call("run_ut", "-api_info", dump, "-o", tmp_path, "--modules", "--candidate", "inject:scale=1e-3")
    assert found.returncode == 0
    (path,) = tmp_path.glob("*_result_*.csv")
    first, second = path.read_text().splitlines()[1:]
    assert first == "Module.fc.Linear.0,error,error,"
    assert second.startswith("Module.odd.Odd.0,SKIP, ,Odd ")
    assert "--api Module.fc.Linear.0" in found.stdout
    verdict = tmp_path / "verdict.json"
    entries = ("Module.fc.Linear.backward.0", "Module.block.Block.forward.0")
    findings = [{"entry": entry, "step": None, "rank": None, "evidence": {}} for entry in entries]
    verdict.write_text(json.dumps({"candidate": str(tmp_path), "findings": findings}))
    assert call("reproduce", verdict, "-o", tmp_path).returncode == 0
    assert (tmp_path / "Module.fc.Linear.0.backward.py").is_file()
    refused = call("reproduce", verdict, "--finding", 2, "-o", tmp_path)
    assert refused.returncode == 2
    assert mentions(refused.stderr, "finding-names-no-leaf")
