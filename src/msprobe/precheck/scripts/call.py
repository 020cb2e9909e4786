"""Reproduces one API call: runs it on a device and in double precision on the CPU, and compares.

This file needs torch alone. Its last lines describe the call; exit status 0 means that all results agree, 1 that they
do not.
"""

from __future__ import annotations

import base64
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from msprobe.messages import said
from msprobe.precheck.side.elements import PASS_UP_TO, format_of
from msprobe.precheck.side.machine import Side
from msprobe.precheck.side.places import (
    Elementwise,
    TakenOver,
    add_distance,
    add_ordinary_errors,
    are_labels,
    units_taken_over,
)
from msprobe.precheck.side.strict import judge_direction, judge_exact, judge_floats
from msprobe.precheck.side.trees import leaves_of, map_tree
from msprobe.precheck.side.types import CONSTANTS, constant_of, dtype_of
from msprobe.precheck.side.words import Executor

# rtol, small value, and its absolute tolerance: the constants of scripts of mindstudio-probe 8.1.1
_LIMITS = {torch.float16: (1e-3, 1e-3, 1e-5), torch.bfloat16: (4e-3, 1e-3, 1e-5)}
_OTHER_LIMITS = (1e-6, 1e-6, 1e-9)


@dataclass
class Sides:
    """Who runs the call. ``function`` is what they call, ``reference`` what the reference does, which computes the
    same in double precision; ``dtype``: another type of float arguments; ``autocast``: that of the recorded call;
    ``kernel``: the same by a kernel of the CPU that is not in question, whose rounding passes; None for none.
    """

    device: Side
    control: Side | None
    function: Callable[..., Any]
    reference: Callable[..., Any]
    dtype: torch.dtype | None = None
    autocast: torch.dtype | None = None
    kernel: Callable[..., Any] | None = None


class Call:
    """The arguments of the call on the CPU, as they were recorded."""

    def __init__(self, content: dict[str, Any], folder: Path, iteration: int = 0) -> None:
        self.content = content
        self.folder = folder
        self.random = torch.Generator().manual_seed(content.get("seed", 1234) + iteration)
        self.wanted: list[torch.Tensor] = []
        self.args = [self.value(node) for node in content["args"]]
        self.kwargs = {name: self.value(node) for name, node in content["kwargs"].items()}
        self.gradients = [self.value(node) for node in content.get("gradients") or []]

    def value(self, node: Any) -> Any:
        """One argument of the description."""
        if not isinstance(node, dict):
            return node
        if "items" in node:
            items = [self.value(item) for item in node["items"]]
            return tuple(items) if node.get("tuple") else items
        if "mapping" in node:
            return {name: self.value(item) for name, item in node["mapping"].items()}
        if "tensor" in node:
            return self.tensor(node["tensor"])
        kind, value = node["kind"], node["value"]
        if kind == "slice":
            return slice(*value)
        if kind == "ellipsis":
            return ...
        if kind == "torch.Size":
            return torch.Size(value)
        if kind == "complex":
            return complex(*value)
        if kind == "float":
            return float(value)
        if kind in CONSTANTS:
            return constant_of(kind, value)
        if kind == "torch.device":
            return torch.device("cpu")
        return value

    def tensor(self, info: dict[str, Any]) -> torch.Tensor:
        """A tensor: its values are embedded, in a file beside the script, or drawn between the recorded extremes."""
        dtype, shape = dtype_of(info["dtype"]), info["shape"]
        if "stored" in info:
            tensor = stored(info, self.folder).to(dtype, copy=True)
        else:
            tensor = self.drawn(info, dtype, shape)
        if info.get("stride"):
            with contextlib.suppress(RuntimeError):
                tensor = strided(tensor, info["stride"])
        if info.get("requires_grad") and (tensor.is_floating_point() or tensor.is_complex()):
            tensor.requires_grad_()
        return tensor

    def drawn(self, info: dict[str, Any], dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
        """Uniform numbers between the recorded extremes, which are the first and the last element."""
        low, high = float(info.get("low") or 0), float(info.get("high") or 0)
        if dtype is torch.bool:
            return torch.rand(shape, generator=self.random) < 0.5
        if dtype.is_floating_point:
            tensor = torch.rand(shape, generator=self.random, dtype=torch.float64) * (high - low) + low
        else:
            tensor = torch.randint(int(low), int(high) + 1, shape, generator=self.random)
        tensor = tensor.to(dtype)
        if tensor.numel():
            tensor.view(-1)[0], tensor.view(-1)[-1] = low, high
        if info.get("ignored") is not None and tensor.numel():  # labels that the loss ignores, at some places
            chosen = torch.randperm(tensor.numel(), generator=self.random)[: max(1, tensor.numel() // 8)]
            tensor.view(-1)[chosen] = info["ignored"]
        if info.get("classes_axis") is not None:  # probabilities
            wide = tensor.double().abs().clamp(min=1e-9)
            tensor = (wide / wide.sum(info["classes_axis"], keepdim=True)).to(dtype)
        return tensor


def stored(info: dict[str, Any], folder: Path) -> torch.Tensor:
    """The values of a tensor, in the type that they are kept in."""
    if "values" in info:
        values: torch.Tensor = info["values"]
        return values
    data = base64.b64decode(info["data"]) if "data" in info else (folder / info["file"]).read_bytes()
    dtype = dtype_of(info["stored"])
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
    return flat.reshape(info["shape"])


def strided(tensor: torch.Tensor, stride: list[int]) -> torch.Tensor:
    """The same values with these strides."""
    if 0 in stride:
        narrow = tensor[tuple(slice(0, 1) if step == 0 else slice(None) for step in stride)]
        return narrow.contiguous().expand(tensor.shape)
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor)


def run(
    call: Call, change: Callable[[torch.Tensor], torch.Tensor], function: Callable[..., Any], side: Side | None = None
) -> list[tuple[str, Any]]:
    """Results, or for propagation backward the gradients, with their names; brought to the CPU.

    ``side``: who runs it; None for the CPU as it is.
    """
    wanted: list[torch.Tensor] = []
    names: list[str] = []
    backward = call.content["propagation"] == "backward"

    def place(tensor: torch.Tensor, path: str) -> torch.Tensor:
        moved = change(tensor.detach()).to(side.device if side else "cpu")
        moved = moved.clone() if moved is tensor or moved.data_ptr() == tensor.data_ptr() else moved
        moved = side.given(moved) if side else moved
        if not (backward and tensor.requires_grad):
            return moved
        wanted.append(moved.requires_grad_())
        names.append(path.lstrip("."))
        return moved * 1  # in-place calls cannot write to leaves

    with torch.set_grad_enabled(backward):
        args = map_tree(side.arranged(call.args) if side else call.args, "input", place)
        result = function(*args, **map_tree(call.kwargs, "", place))
    outputs = leaves_of(args[0] if result is None else result)
    if side is not None:
        side.gave = [value.dtype for value in outputs if isinstance(value, torch.Tensor)]
    if not backward:
        return [(str(number), home(value)) for number, value in enumerate(outputs)]
    given = leaves_of(call.gradients)
    pairs = [
        (output, gradient)
        for output, gradient in zip(outputs, given, strict=False)
        if isinstance(output, torch.Tensor) and output.requires_grad and isinstance(gradient, torch.Tensor)
    ]
    sent = [change(gradient).to(output.device, output.dtype) for output, gradient in pairs]
    gradients = torch.autograd.grad([output for output, _ in pairs], wanted, sent, allow_unused=True)
    titles = [
        said("gradient-of-argument-title", number, name) if name else str(number) for number, name in enumerate(names)
    ]
    return [(title, home(value)) for title, value in zip(titles, gradients, strict=True)]


def run_on(call: Call, change: Callable[[torch.Tensor], torch.Tensor], sides: Sides, side: Side) -> list[Any]:
    """The call as a side makes it: with its switches, under autocast where the recorded one was."""
    autocast = None if sides.dtype else sides.autocast
    if autocast is not None:
        with contextlib.suppress(Exception), side.switched(autocast):
            return run(call, change, side.calling(sides.function), side)
    with side.switched():
        return run(call, change, side.calling(sides.function), side)


def home(value: Any) -> Any:
    """A tensor on the CPU."""
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in double precision."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor


@dataclass
class Seen:
    """What disturbed calls show of each result: how far rounding moves it, whether it is elementwise, and where it has
    numbers of the arguments.
    """

    moved: dict[str, Any]
    elementwise: frozenset[str]
    taken: dict[str, torch.Tensor]


def disturbed(call: Call, eps: float, bench: list[tuple[str, Any]], function: Callable[..., Any]) -> Seen:
    """What the reference gives when its inputs are off by one unit of rounding at random places."""
    moved: dict[str, Any] = {}
    elementwise, taken_over = Elementwise(), TakenOver()
    for seed in range(3):
        everywhere = seed == 2
        if everywhere and not taken_over.places:
            break
        random = torch.Generator().manual_seed(seed)
        touched: list[torch.Tensor] = []
        given: list[torch.Tensor] = []

        def off(
            tensor: torch.Tensor,
            random: torch.Generator = random,
            touched: list[torch.Tensor] = touched,
            given: list[torch.Tensor] = given,
            least: int = int(everywhere),
        ) -> torch.Tensor:
            tensor = wide(tensor)
            if not (tensor.is_floating_point() or tensor.is_complex()):
                return tensor
            share = torch.randint(least, 2, tensor.shape, generator=random)
            touched.append(share.zero_() if are_labels(tensor) else share)
            given.append(tensor * (1 - eps * share))
            return given[-1]

        with contextlib.suppress(Exception):
            for (name, old), (_, new) in zip(bench, run(call, off, function), strict=True):
                taken_over.see(name, old, new, given, everywhere)
                if not everywhere:
                    add_distance(moved, name, old, new)
                    elementwise.see(name, old, new, touched)
    return Seen(moved, elementwise.names, taken_over.places)


def judge(
    device: Any,
    bench: Any,
    moved: Any,
    is_elementwise: bool = False,
    taken: torch.Tensor | None = None,
    is_gradient: bool = False,
) -> tuple[str, float, str]:
    """``pass``, ``Warning`` or ``error``; the error in scales of rounding; and why.

    ``moved``: how far rounding of the arguments moves each element; ``taken``: where there are numbers of these.
    """
    if not isinstance(device, torch.Tensor) or not isinstance(bench, torch.Tensor):
        equal = device == bench or (device != device and bench != bench)
        if not equal and moved is not None and isinstance(device, (int, float)) and isinstance(bench, (int, float)):
            equal = abs(device - bench) <= PASS_UP_TO * float(moved.max())
        return ("pass", 0.0, "") if equal else ("error", math.inf, said("value-differs", device, bench))
    if device.shape != bench.shape:
        return "error", math.inf, said("result-shapes-differ", tuple(device.shape), tuple(bench.shape))
    if device.is_complex():
        device, bench = torch.view_as_real(device), torch.view_as_real(bench)
    if not device.is_floating_point():
        judged = judge_exact(bench, device, None if moved is None else moved > 0)
        return judged.status, judged.scaled or 0.0, judged.message
    dtype = str(device.dtype).removeprefix("torch.")
    rounded, d, b = bench.to(device.dtype).double(), device.double(), bench.double()
    units = units_taken_over(device.dtype, is_gradient)
    judged = judge_floats(b, rounded, d, dtype, moved, is_elementwise, taken, units)
    scaled = judged.scaled or 0.0
    if judged.status != "error" and (taken is None or units):
        epsilon = float(torch.finfo(device.dtype).eps)
        signed = judge_direction(b, rounded, d, dtype, epsilon, moved, is_elementwise)
        if signed.status == "error" or (signed.status == "Warning" and judged.status == "pass"):
            return signed.status, scaled, signed.message
    return judged.status, scaled, judged.message


def metrics(device: torch.Tensor, bench: torch.Tensor, standard: str) -> list[tuple[str, Any]]:
    """The numbers of the API's standard."""
    rows: list[tuple[str, Any]] = [
        ("Shape", tuple(device.shape)),
        ("Dtype of out_device", device.dtype),
        ("Dtype of out_bench", bench.dtype),
        ("Compare Standard", standard),
    ]
    d, b = device.double().flatten(), bench.to(torch.float64).flatten()
    if d.numel() == 0 or d.shape != b.shape:
        return rows
    if standard == "Binary Equality Standard" or not device.is_floating_point():
        return [*rows, ("Error Rate", float((d != b).double().mean()))]
    rtol, small_value, atol = _LIMITS.get(device.dtype, _OTHER_LIMITS)
    error = (d - b).abs()
    relative = error / (b.abs() + 2.0**-52)
    small = b.abs() <= small_value
    normal = ~small & d.isfinite() & b.isfinite()
    if standard == "Absolute Threshold Standard":
        over, off = (relative > rtol) & normal, (error > atol) & small
        return [*rows, ("Relative Error Ratio", share(over, normal)), ("Absolute Error Ratio", share(off, small))]
    if standard == "ULP error Standard":
        mantissa, least, _ = format_of(str(device.dtype).removeprefix("torch."))
        exponent = torch.where(b == 0, torch.zeros_like(b), torch.floor(torch.log2(b.abs()))).clamp(min=least)
        ulp = error * torch.exp2(mantissa - exponent)
        over = ulp > (32 if device.dtype is torch.float32 else 1)
        names = ("Maximum ULP Error", "Mean ULP Error", "ULP Error Proportion")
        return rows + list(zip(names, (float(ulp.max()), float(ulp.mean()), float(over.double().mean())), strict=True))
    if standard == "Thousandth Standard":
        return [*rows, ("Thousandth ratio", float((relative < 0.001).double().mean()))]
    chosen = relative[normal]
    square = error[normal].square().sum() / max(int(normal.sum()), 1)
    return [
        *rows,
        ("Small Value Error Proportion", share((error > atol) & small, small)),
        ("Maximum Relative Error", float(chosen.max()) if chosen.numel() else 0.0),
        ("Mean Relative Error", float(chosen.mean()) if chosen.numel() else 0.0),
        ("Root Mean Squared Error", math.sqrt(float(square))),
        ("Error Balance", abs(int((d > b).sum()) - int((d < b).sum())) / d.numel()),
    ]


def share(bad: torch.Tensor, of: torch.Tensor) -> float:
    """The part of ``of`` that is bad."""
    return float((bad & of).sum()) / max(int(of.sum()), 1)


class CannotRunError(Exception):
    """A side raises, so there is nothing to be compared."""


def check(call: Call, sides: Sides, show: bool = True) -> str:
    """Run both sides, print what differs, and return the verdict. Raises CannotRunError."""

    def chosen(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(sides.dtype) if sides.dtype is not None and tensor.is_floating_point() else tensor

    try:
        device = run_on(call, chosen, sides, sides.device)
        control = run_on(call, chosen, sides, sides.control) if sides.control else []
    except Exception as problem:
        where = said("trusted-control") if "device" in locals() else sides.device.name
        raise CannotRunError(said("call-cannot-be-run", call.content["api"], where, words_of(problem))) from problem
    try:
        bench = run(call, lambda tensor: wide(chosen(tensor)), sides.reference)
    except Exception as problem:
        raise CannotRunError(said("reference-cannot-be-run", words_of(problem))) from problem
    if len(device) < len(bench):
        raise CannotRunError(said("script-results-missing", call.content["api"], len(device), len(bench)))
    # The reference of a fused function has the first results alone.
    device, control = device[: len(bench)], control[: len(bench)]
    seen = [value for _, value in device] + leaves_of(call.gradients)
    types = [value.dtype for value in seen if isinstance(value, torch.Tensor) and value.is_floating_point()]
    # A call under autocast rounds to the type of its results, also where its gradients have that of the arguments.
    types += [dtype for dtype in sides.device.gave if dtype.is_floating_point]
    eps = max((float(torch.finfo(dtype).eps) for dtype in types), default=2.0**-23)
    around = disturbed(call, eps, bench, sides.reference)
    tensors = [
        tensor for tensor in leaves_of([call.args, call.kwargs, call.gradients]) if isinstance(tensor, torch.Tensor)
    ]
    given = [chosen(tensor.detach()) for tensor in tensors]
    ordinary = zip(bench, errors_of_cpu(call, chosen, sides, device), strict=False)
    add_ordinary_errors(around.moved, [(name, first, other) for (name, first), (_, other) in ordinary], given, eps)
    backward = call.content["propagation"] == "backward"
    verdicts = []
    for number, ((name, ours), (_, theirs)) in enumerate(zip(device, bench, strict=True)):
        moved = around.moved.get(name)
        like_arguments = isinstance(ours, torch.Tensor) and {ours.dtype} == {
            tensor.dtype for tensor in given if tensor.is_floating_point()
        }
        taken = around.taken.get(name) if like_arguments else None
        status, scaled, why = judge(ours, theirs, moved, name in around.elementwise, taken, backward)
        beside: list[tuple[str, Any]] = []
        if sides.control:
            _, other, _ = judge(control[number][1], theirs, moved)
            beside = [("Scaled error of the control", other)]
            if status != "pass" and scaled <= 2 * other:
                status, why = "pass", said("control-as-far-off", sides.control.name)
        verdicts.append(status)
        if show:
            if len(device) > 1:
                print(f"index {name}:")
            rows: list[tuple[str, Any]] = []
            if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor) and not ours.is_complex():
                rows = metrics(ours, theirs, call.content["standard"])
            print_table([*rows, ("Scaled error", scaled), *beside, ("Verdict", f"{status}: {why}" if why else status)])
    return next((word for word in ("error", "Warning") if word in verdicts), "pass")


def errors_of_cpu(
    call: Call, change: Callable[[torch.Tensor], torch.Tensor], sides: Sides, device: list[tuple[str, Any]]
) -> list[tuple[str, Any]]:
    """What a kernel of the CPU that is not in question gives for the same call; nothing where it has none."""
    if sides.kernel is None:
        return []
    if sides.device.name == "cpu" and not sides.device.fault:
        return device
    with contextlib.suppress(Exception):
        return run_on(call, change, replace(sides, function=sides.kernel), Side(Executor("cpu", "cpu")))
    return []


def words_of(problem: Exception) -> str:
    """The class of an error, and the first line of its text."""
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0]}" if lines else type(problem).__name__


def print_table(rows: list[tuple[str, Any]]) -> None:
    """Print names and values in two columns."""
    width = max(len(name) for name, _ in rows)
    print(f"{'Metric':<{width}} | Value")
    for name, value in rows:
        print(f"{name:<{width}} | {value}")
