"""Pairs of dumps with one operator for each edge case of a comparison.

``tests/data/compare_edge/expected_*.csv`` hold what mindstudio-probe 8.1.1 (with pandas 2.0) wrote for them, without
messages and stacks.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

Task = Literal["tensor", "statistics", "md5"]
Side = Literal["npu", "bench"]

NAN, INF = float("nan"), float("inf")
BASE = torch.arange(1, 13, dtype=torch.float32).reshape(3, 4)
FRAMES = ["File /a/b.py, line 1, in f, \n y=op(x)", "File /a/c.py, line 2, in <module>, \n f()"]
_UNSET = object()


@dataclass
class Call:
    """One record on both sides: (candidate, reference)."""

    name: str
    inputs: tuple[Any, Any]
    output: tuple[Any, Any]
    kwargs: tuple[dict[str, Any], dict[str, Any]]
    sides: tuple[Side, ...] = ("npu", "bench")


def _op(name: str, ours: Any, theirs: Any, given: Any = _UNSET, kw: Any = None, kw_there: Any = _UNSET) -> Call:
    """A forward call; ``given`` is the candidate's input, the reference's is always BASE unless both have it."""
    inputs = (BASE, BASE) if given is _UNSET else (given, BASE)
    kw = kw or {}
    return Call(f"Torch.{name}.0.forward", inputs, (ours, theirs), (kw, kw if kw_there is _UNSET else kw_there))


def _at_three(value: float, base: torch.Tensor = BASE, where: float = 3.0) -> torch.Tensor:
    """The base with ``value`` in place of one element."""
    return torch.where(where == BASE, value, base)


def _leaf(kind: str, **value: Any) -> dict[str, Any]:
    return {"type": kind, **value}


def _numbers() -> list[Call]:
    nan = _at_three(NAN)
    return [
        _op("same", BASE, BASE),
        _op("tiny", BASE + 1e-4, BASE),
        _op("big", BASE * 1.5, BASE),
        _op("huge", BASE * 1e12, BASE),
        _op("nan_npu", nan, BASE),
        _op("nan_both_same", nan, nan),
        _op("nan_both_diffpos", nan, _at_three(NAN, where=4.0)),
        _op("nan_bench", BASE, nan),
        _op("inf_both_same", _at_three(INF), _at_three(INF, BASE + 1)),
        _op("inf_sign", _at_three(INF), _at_three(-INF)),
        _op("inf_npu", _at_three(INF), BASE),
        _op("zero_npu", torch.zeros(3, 4), BASE),
        _op("zero_bench", BASE, torch.zeros(3, 4)),
        _op("zero_both", torch.zeros(3, 4), torch.zeros(3, 4)),
        _op("empty", torch.zeros(0, 4), torch.zeros(0, 4)),
        _op("zerod", torch.tensor(2.5), torch.tensor(2.0)),
        _op("zerod_same", torch.tensor(2.0), torch.tensor(2.0)),
        _op("zerod_bool", torch.tensor(True), torch.tensor(False)),
        _op("zerod_int", torch.tensor(7), torch.tensor(5)),
        _op("zerod_nan", torch.tensor(NAN), torch.tensor(1.0)),
        _op("len1", torch.tensor([2.5]), torch.tensor([2.0])),
        _op("shape", torch.ones(3, 4), torch.ones(4, 3)),
        _op("shape_file", torch.ones(12), torch.ones(12)),
        _op("booln", torch.tensor([True, False, True]), torch.tensor([True, True, True])),
        _op("intt", torch.tensor([1, 2, 3]), torch.tensor([1, 2, 5])),
        _op("int_big", torch.tensor([2**62 + 1, 2]), torch.tensor([2**62, 2])),
        _op("uint8", torch.tensor([1, 2, 255], dtype=torch.uint8), torch.tensor([2, 1, 255], dtype=torch.uint8)),
        _op("bf16_fp32", BASE.bfloat16() * 1.01, BASE),
        _op("fp16_fp16", (BASE * 1.01).half(), BASE.half()),
        _op("fp16_zero", (BASE - 1).half(), (BASE - 1.5).half() * 0),
        _op("fp64_fp32", BASE.double(), BASE),
        _op("int32_int64", BASE.int(), BASE.long()),
        _op("cplx", BASE.to(torch.complex64), BASE.to(torch.complex64) * 1.1),
        _op("ratio", torch.cat([torch.ones(1), torch.ones(9) * 1.002]), torch.ones(10)),
        _op("cosdrop", torch.cat([torch.ones(5), -torch.ones(5)]), torch.ones(10)),
        _op("mag", BASE * 100, BASE, given=BASE + 1.5),
    ]


def _arguments() -> list[Call]:
    size, other_size = torch.Size([2, 3]), torch.Size([2, 4])
    devices = [{"device": _leaf("torch.device", value=name)} for name in ("npu:0", "cuda:0")]
    dtypes = [{"dtype": _leaf("torch.dtype", value=name)} for name in ("torch.float16", "torch.float32")]
    nested = Call(
        "Torch.nested.0.forward",
        (BASE, BASE),
        ([BASE, [BASE + 1, BASE + 2]], [BASE, [BASE + 1, BASE + 3]]),
        ({"d": {"x": BASE, "y": [BASE, 1]}}, {"d": {"x": BASE, "y": [BASE, 1]}}),
    )
    return [
        _op("none_out", None, None),
        _op("none_vs_t", None, BASE),
        _op("t_vs_none", BASE, None),
        _op("str_arg", BASE, BASE, kw={"mode": "a"}, kw_there={"mode": "b"}),
        _op("int_arg", BASE, BASE, kw={"dim": 1}, kw_there={"dim": 2}),
        _op("bool_arg", BASE, BASE, kw={"flag": True}, kw_there={"flag": False}),
        _op("float_arg", BASE, BASE, kw={"p": 0.5, "q": 0.0}, kw_there={"p": 0.25, "q": 0.0}),
        _op("miss_arg", BASE, BASE, kw={"p": 0.5, "extra": 1}, kw_there={"p": 0.5}),
        _op("size_arg", BASE, BASE, kw={"size": size}, kw_there={"size": other_size}),
        _op("slice_arg", BASE, BASE, kw={"s": slice(0, 2, 1)}, kw_there={"s": slice(0, 3, 1)}),
        _op("dev_arg", BASE, BASE, kw=devices[0], kw_there=devices[1]),
        _op("dt_arg", BASE, BASE, kw=dtypes[0], kw_there=dtypes[1]),
        _op("ell_arg", BASE, BASE, kw={"e": _leaf("ellipsis", value="...")}),
        _op("pg_arg", BASE, BASE, kw={"group": _leaf("torch.ProcessGroup", group_ranks=[0, 1])}),
        _op("emptylist", BASE, BASE, kw={"l": []}),
        nested,
    ]


def _one_sided() -> list[Call]:
    def alone(name: str, side: Side, factor: float = 1.0) -> Call:
        return Call(name, (BASE, BASE), (BASE * factor, BASE * factor), ({}, {}), (side,))

    return [
        alone("Torch.onlynpu.0.forward", "npu"),
        alone("Torch.onlybench.0.forward", "bench"),
        alone("Torch.call.1.forward", "npu", 2),
        alone("Torch.call.2.forward", "npu", 3),
        alone("Torch.call.5.forward", "bench", 2),
        alone("Torch.call.6.forward", "bench", 3),
        Call("Torch.bwd.0.backward", (BASE, BASE), (BASE * 2.0, BASE * 1.0), ({}, {})),
    ]


def calls() -> list[Call]:
    """All cases, in the order of the dumps."""
    return [*_numbers(), *_arguments(), *_one_sided()]


def write_pair(folder: Path, task: Task) -> tuple[Path, Path]:
    """Write both sides below ``folder``; returns their ``dump.json``. Of tensor dumps some files are broken."""
    paths = tuple(_write(folder / f"{task}_{side}", side, task) for side in ("npu", "bench"))
    if task == "tensor":
        values = paths[1].parent / "dump_tensor_data"
        torch.save(torch.ones(2, 6), values / "Torch.shape_file.0.forward.output.0.pt")
        (values / "Torch.tiny.0.forward.input.0.pt").unlink()
        (values / "Torch.big.0.forward.input.0.pt").write_bytes(b"garbage")
    return paths[0], paths[1]


def _write(folder: Path, side: Side, task: Task) -> Path:
    values = folder / "step0" / "rank" / "dump_tensor_data"
    values.mkdir(parents=True)
    place = ("npu", "bench").index(side)
    encoder = _Encoder(values, task)
    data = {
        call.name: encoder.record(call.name, call.inputs[place], call.output[place], call.kwargs[place])
        for call in calls()
        if side in call.sides
    }
    header = {"task": "tensor" if task == "tensor" else "statistics", "level": "L1", "framework": "pytorch"}
    dump = values.parent / "dump.json"
    dump.write_text(json.dumps({**header, "dump_data_dir": None, "data": data}, indent=1))
    stacks = {str(number): [[name], FRAMES] for number, name in enumerate(data)}
    (values.parent / "stack.json").write_text(json.dumps(stacks))
    (values.parent / "construct.json").write_text(json.dumps(dict.fromkeys(data)))
    return dump


@dataclass
class _Encoder:
    """Writes values as a dump has them, and tensors to files."""

    values: Path
    task: Task

    def record(self, name: str, given: Any, made: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        inputs = [self.encode(name, given, "input.0")]
        output = [self.encode(name, made, "output.0")]
        if name.endswith(".backward"):
            return {"input": inputs, "output": output}
        kwargs = {key: self.encode(name, value, f"input.{key}") for key, value in kwargs.items()}
        return {"input_args": inputs, "input_kwargs": kwargs, "output": output}

    def encode(self, name: str, value: Any, place: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, f"{name}.{place}.pt")
        if isinstance(value, torch.Size):
            return _leaf("torch.Size", value=list(value))
        if isinstance(value, list):
            return [self.encode(name, item, f"{place}.{i}") for i, item in enumerate(value)]
        if isinstance(value, dict):
            if "type" in value:
                return value
            return {key: self.encode(name, item, f"{place}.{key}") for key, item in value.items()}
        if value is None:
            return None
        if isinstance(value, slice):
            return _leaf("slice", value=[value.start, value.stop, value.step])
        return _leaf(type(value).__name__, value=value)

    def _tensor(self, value: torch.Tensor, file: str) -> dict[str, Any]:
        leaf = _leaf("torch.Tensor", dtype=str(value.dtype), shape=list(value.shape), **_statistics(value))
        leaf["requires_grad"] = False
        if self.task == "md5":
            raw = value.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
            leaf["md5"] = f"{zlib.crc32(raw):08x}"
        elif self.task == "tensor":
            leaf["data_name"] = file
            torch.save(value.clone(), self.values / file)
        return leaf


def _statistics(value: torch.Tensor) -> dict[str, Any]:
    nothing: dict[str, Any] = dict.fromkeys(("Max", "Min", "Mean", "Norm"))
    if value.numel() == 0 or value.is_complex():
        return nothing
    if value.dtype == torch.bool:
        return {**nothing, "Max": bool(value.any()), "Min": bool(value.all())}
    wide = value.float()
    return {
        "Max": wide.max().item(),
        "Min": wide.min().item(),
        "Mean": wide.mean().item(),
        "Norm": wide.norm().item(),
    }
