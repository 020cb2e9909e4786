"""Reproduces one API call of MindSpore: runs it on a device and in double precision, and compares.

This file needs MindSpore and numpy alone. Its last lines describe the call; exit status 0 means that all results agree,
1 that they do not, 2 that the call cannot be run. The files of the comparison are written into op_result_output.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json  # noqa: F401  (the last lines of a script)
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import mindspore
import numpy as np
from mindspore import mint

from msprobe.messages import said
from msprobe.precheck.side.cosine import judge_by_cosine

REFUSED = frozenset("load save load_checkpoint save_checkpoint export from_file compile".split())
_SPACES = {"Mint": mint, "MintFunctional": mint.nn.functional, "Tensor": mindspore.Tensor}
# What texts of records name, looked up in a list: a function has a name as well.
_TYPES = """
bool int8 byte int16 short int32 intc int64 intp uint8 ubyte uint16 ushort uint32 uintc uint64 uintp float16 half
float32 single float64 double bfloat16 complex64 complex128 int4 hifloat8 float8_e4m3fn float8_e5m2
"""
DTYPES: dict[str, Any] = {
    name: getattr(mindspore, name, None) or getattr(mindspore, f"{name}_", None) for name in _TYPES.split()
}
RESULT_HEADER = ("API Name", "Forward Test Success", "Backward Test Success", "Message")
DETAILS_HEADER = (
    *("API Name", "Bench Dtype", "Tested Dtype", "Shape", "Cosine", "MaxAbsErr", "MaxRelativeErr", "Status", "Message"),
)


class Call:
    """The arguments of the call, as they were recorded, or in double precision (``wide``)."""

    def __init__(self, content: dict[str, Any], folder: Path, iteration: int, wide: bool) -> None:
        self.folder = folder
        self.wide = wide
        self.random = np.random.default_rng(content.get("seed", 1234) + iteration)
        self.args = [self.value(node) for node in content["args"]]
        self.kwargs = {name: self.value(node) for name, node in content["kwargs"].items()}
        self.gradients = [self.value(node) for node in content.get("gradients") or []]

    def value(self, node: Any) -> Any:
        """One argument of the description."""
        if not isinstance(node, dict):
            return node
        if "items" in node:
            return tuple(self.value(item) for item in node["items"])
        if "mapping" in node:
            return {name: self.value(item) for name, item in node["mapping"].items()}
        if "tensor" in node:
            return self.tensor(node["tensor"])
        kind, value = node["kind"], node["value"]
        if kind == "slice":
            return slice(*value)
        if kind == "ellipsis":
            return ...
        if kind == "mindspore.dtype":
            return DTYPES[str(value).rpartition(".")[2].lower()]
        return float(value) if kind == "float" else value

    def tensor(self, info: dict[str, Any]) -> Any:
        """A tensor: its values are embedded, in a file beside the script, or drawn between the recorded extremes."""
        word, shape = info["dtype"], info["shape"]
        if "data" in info or "file" in info:
            data = base64.b64decode(info["data"]) if "data" in info else (self.folder / info["file"]).read_bytes()
            array = np.frombuffer(data, dtype=info["stored"]).reshape(shape)
        else:
            array = self.drawn(info, word, shape)
        kind = DTYPES[word]
        if not word.startswith(("float", "bfloat")):
            return mindspore.Tensor(array.copy()).astype(kind)
        tensor = mindspore.Tensor(array.astype(np.float64 if word == "float64" else np.float32)).astype(kind)
        return tensor.astype(mindspore.float32).astype(mindspore.float64) if self.wide else tensor

    def drawn(self, info: dict[str, Any], word: str, shape: list[int]) -> Any:
        """Uniform numbers between the recorded extremes, which are the first and the last element."""
        low, high = float(info.get("low") or 0), float(info.get("high") or 0)
        if word == "bool":
            return self.random.random(shape) > 0.5
        if not word.startswith(("float", "bfloat")):
            labels = np.asarray(self.random.integers(int(low), int(high), shape, endpoint=True))
            if info.get("ignored") is not None and labels.size:  # those that the loss ignores, at some places
                labels.flat[self.random.permutation(labels.size)[: max(1, labels.size // 8)]] = info["ignored"]
            return labels
        array = self.random.uniform(low, high, shape)
        if array.size:
            array.flat[0], array.flat[-1] = low, high
        return array


def function_of(content: dict[str, Any]) -> Callable[..., Any]:
    """The function of the description. Raises LookupError for what is no computation of MindSpore."""
    return api_of(_SPACES[content["type"]], content["name"])


def api_of(space: Any, name: str) -> Callable[..., Any]:
    """A function by its name, as ``nn.functional.relu``; what such a module has imported is no part of it.

    Raises LookupError.
    """
    api = space
    for part in name.split("."):
        is_private = part.startswith("_") and not part.endswith("__")
        api = None if is_private or part in REFUSED else getattr(api, part, None)
        if isinstance(api, ModuleType) and not api.__name__.startswith("mindspore.mint"):
            api = None
    is_own = str(getattr(api, "__module__", "mindspore")).partition(".")[0] in ("mindspore", "builtins", "None")
    if api is None or not callable(api) or isinstance(api, type) or not is_own:
        raise LookupError(said("mindspore-api-not-run", mindspore.__version__, name))
    return api  # type: ignore[no-any-return]


def leaves(value: Any) -> list[Any]:
    """The leaves of a result, in order."""
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, (list, tuple)) else [value]


def run(content: dict[str, Any], call: Call) -> list[Any]:
    """Results, or for propagation backward the gradients of float tensors."""
    function = function_of(content)
    if content["propagation"] != "backward":
        return leaves(function(*call.args, **call.kwargs))
    places = [
        place
        for place, argument in enumerate(call.args)
        if isinstance(argument, mindspore.Tensor) and str(argument.dtype).startswith(("Float", "BFloat"))
    ]

    def with_tensors(*tensors: Any) -> Any:
        whole = list(call.args)
        for place, tensor in zip(places, tensors, strict=True):
            whole[place] = tensor
        return function(*whole, **call.kwargs)

    outputs, pull = mindspore.vjp(with_tensors, *(call.args[place] for place in places))
    sent = [gradient.astype(output.dtype) for gradient, output in zip(call.gradients, leaves(outputs), strict=False)]
    return leaves(pull(*sent))


def plain(value: Any) -> tuple[Any, str]:
    """A result as an array, and its type in MindSpore's word."""
    if not isinstance(value, mindspore.Tensor):
        return value, type(value).__name__
    word = str(value.dtype)
    return (value.astype(mindspore.float32) if word == "BFloat16" else value).asnumpy(), word


def judge(name: str, bench: Any, tested: Any) -> list[Any]:
    """The row of one result in the details file."""
    (ours, our_type), (theirs, their_type) = plain(bench), plain(tested)
    judged = judge_by_cosine(ours, theirs, their_type)
    shape = str(theirs.shape) if isinstance(ours, np.ndarray) and isinstance(theirs, np.ndarray) else ""
    numbers = ("" if number is None else repr(number) for number in judged[2:])
    return [name, our_type, their_type, shape, *numbers, judged.status, judged.message]


def spoiled(value: Any, amount: str) -> Any:
    """A result with the fault that was asked for."""
    is_float = isinstance(value, mindspore.Tensor) and str(value.dtype).startswith(("Float", "BFloat"))
    return (value * (1 + float(amount))).astype(value.dtype) if amount and is_float else value


def check(content: dict[str, Any], folder: Path, iteration: int, fault: str) -> list[list[Any]]:
    """Run both sides; a row for each result."""
    bench = run(content, Call(content, folder, iteration, wide=True))
    tested = run(content, Call(content, folder, iteration, wide=False))
    name = f"{content['api']}.{content['propagation']}.output"
    return [
        judge(f"{name}.{place}", ours, spoiled(theirs, fault))
        for place, (ours, theirs) in enumerate(zip(bench, tested, strict=True))
    ]


def harmless(cell: Any) -> Any:
    """A cell that no spreadsheet runs: names come out of a dump."""
    if not isinstance(cell, str) or not cell.lstrip().startswith(
        ("=", "+", "-", "@", "%", "＝", "＋", "－", "＠", "％")
    ):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def write(kind: str, stamp: str, rows: list[Any]) -> Path:
    """One of the two files."""
    path = Path("op_result_output", f"accuracy_checking_{kind}_{stamp}.csv")
    path.parent.mkdir(mode=0o750, exist_ok=True)
    path.unlink(missing_ok=True)  # a link of that name is not followed
    with path.open("x", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows([[harmless(cell) for cell in row] for row in rows])
    path.chmod(0o640)
    return path


def main(content: dict[str, Any], path: str) -> int:
    """The command line of the script."""
    parser = argparse.ArgumentParser(description=said("script-about", content["api"], content["propagation"]))
    parser.add_argument("--device", default=content.get("device") or "", help=said("script-help-target"))
    parser.add_argument("--inject", default="", metavar="SHARE", help=said("script-help-share"))
    options = parser.parse_args()
    kind, _, number = options.device.partition(":")
    if kind:
        target = {"cpu": "CPU", "cuda": "GPU", "npu": "Ascend"}.get(kind, kind)
        try:
            mindspore.set_context(device_target=target, **({"device_id": int(number)} if number else {}))
        except Exception as problem:
            why = (str(problem).strip() or type(problem).__name__).splitlines()[0]
            parser.error(said("script-target-wrong", options.device, why))
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    details, results = [], []
    for iteration in range(content.get("iterations", 1)):
        try:
            rows = check(content, Path(path).resolve().parent, iteration, options.inject)
        except Exception as problem:  # a kernel that is not there, most often
            why = (str(problem).strip().splitlines() or [""])[0]
            print(said("mindspore-call-fails", content["api"], type(problem).__name__, why))
            return 2
        print(said("script-iteration", iteration))
        for row in rows:
            print("\n".join(f"{name:<15} | {cell}" for name, cell in zip(DETAILS_HEADER, row, strict=True)))
        status = "error" if any(row[7] == "error" for row in rows) else "pass"
        backward = content["propagation"] == "backward"
        results.append([content["api"], *(("", status) if backward else (status, "")), rows[0][8]])
        details += rows
    stamp = time.strftime("%Y%m%d%H%M%S")
    for kind, header, rows in (("result", RESULT_HEADER, results), ("details", DETAILS_HEADER, details)):
        print(f"  {write(kind, stamp, [header, *rows])}")
    verdict = "error" if any(row[7] == "error" for row in details) else "pass"
    print(said("script-verdict-alone", verdict, content["api"], content["propagation"]))
    return int(verdict == "error")
