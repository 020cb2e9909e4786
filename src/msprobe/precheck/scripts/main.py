"""The rest of a script that reproduces a call: its command line, and the search for a smaller call that fails.

It stands behind :mod:`msprobe.precheck.scripts.call` in the script, without what it imports from there.
"""

from __future__ import annotations

import argparse
import base64
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from msprobe.messages import said
from msprobe.precheck.scripts.call import Call, CannotRunError, Sides, check, run, stored, wide
from msprobe.precheck.side.ending import ending
from msprobe.precheck.side.functions import function_of, loaded, reference_function
from msprobe.precheck.side.machine import Side
from msprobe.precheck.side.types import dtype_of
from msprobe.precheck.side.words import DTYPES, FAULTS, WORDS, FaultError, read_fault, read_words

MOST_EMBEDDED_BYTES = 1 << 20
# The dimensions of one length that are made smaller together: all, or those at one place, counted from the last one.
Group = tuple[int, int | None]


def smaller(content: dict[str, Any], group: Group, part: slice) -> dict[str, Any]:
    """The description with a part of these dimensions; for all of a length, whole numbers like it change, too."""
    length, place = group
    to = len(range(length)[part])

    def walk(node: Any) -> Any:
        if isinstance(node, dict) and "tensor" in node:
            return {"tensor": cut(node["tensor"], group, part)}
        if isinstance(node, dict):
            return {name: walk(value) for name, value in node.items()}
        if isinstance(node, list):
            return [walk(item) for item in node]
        return to if place is None and type(node) is int and node == length else node

    parts = {name: walk(content[name]) for name in ("args", "kwargs", "gradients") if content.get(name)}
    return {**content, **parts}


def cut(info: dict[str, Any], group: Group, part: slice) -> dict[str, Any]:
    """A tensor with a part of each dimension of the group."""
    last = len(info["shape"]) - 1
    kept = [part if is_in(group, n, last - axis) else slice(None) for axis, n in enumerate(info["shape"])]
    shape = [len(range(n)[kept_part]) for n, kept_part in zip(info["shape"], kept, strict=True)]
    if shape == info["shape"]:
        return info
    values = {"values": info["values"][tuple(kept)].contiguous()} if "values" in info else {}
    return {**info, "shape": shape, "stride": None, **values}


def is_in(group: Group, length: int, place: int) -> bool:
    """True if a dimension of this length, at this place from the last one, belongs to the group."""
    return length == group[0] and group[1] in (None, place)


def minimize(content: dict[str, Any], sides: Sides, folder: Path) -> dict[str, Any]:
    """The smallest call that still fails: dimensions get shorter and arguments are left out while it does."""

    def fails(candidate: dict[str, Any]) -> bool:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return check(Call(candidate, folder), sides, show=False) == "error"
        except Exception:
            return False

    def shorter(group: Group) -> dict[str, Any] | None:
        length = group[0]
        # Half is taken away; where that is too much, less and less, down to a single element; from either end.
        taken = sorted({max(1, length >> shift) for shift in range(1, length.bit_length() + 1)}, reverse=True)
        for part in (part for n in taken for part in (slice(0, length - n), slice(n, length))):
            candidate = smaller(content, group, part)
            if fails(candidate):
                return candidate
        return None

    content = each_tensor(content, lambda info: with_values(info, folder))
    shrunk = True
    while shrunk:
        shrunk = False
        for group in groups(content):
            shortened = shorter(group)
            if shortened is not None:
                content, shrunk = shortened, True
                break
        for name in list(content["kwargs"]):
            candidate = {**content, "kwargs": {word: node for word, node in content["kwargs"].items() if word != name}}
            if fails(candidate):
                content, shrunk = candidate, True
        if len(content["args"]) > 1 and fails({**content, "args": content["args"][:-1]}):
            content, shrunk = {**content, "args": content["args"][:-1]}, True
    return content


def each_tensor(node: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A description with the descriptions of its tensors replaced."""
    if isinstance(node, dict) and "tensor" in node:
        return {"tensor": change(node["tensor"])}
    if isinstance(node, dict):
        return {name: each_tensor(value, change) for name, value in node.items()}
    return [each_tensor(item, change) for item in node] if isinstance(node, list) else node


def with_values(info: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The description of a tensor with its values in memory, where it has any of its own."""
    if "stored" not in info:
        return info
    plain = {word: value for word, value in info.items() if word not in ("data", "file")}
    return {**plain, "values": stored(info, folder)}


def written(info: dict[str, Any], target: Path) -> dict[str, Any]:
    """The description of a tensor as text: its values embedded, or in a file beside ``target`` if they are many."""
    if "values" not in info:
        return info
    plain = {word: value for word, value in info.items() if word != "values"}
    data = bytes(info["values"].contiguous().flatten().view(torch.uint8).numpy())
    if len(data) <= MOST_EMBEDDED_BYTES:
        return {**plain, "data": base64.b64encode(data).decode()}
    file = target.with_suffix(f".{len(list(target.parent.glob(f'{target.stem}.*.bin')))}.bin")
    replace_file(file, data)
    return {**plain, "file": file.name}


def replace_file(path: Path, data: bytes) -> None:
    """Write a file in the place of what has its name: a link there is replaced, and not followed."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    Path(name).chmod(0o640)
    Path(name).replace(path)


def groups(content: dict[str, Any]) -> list[Group]:
    """What can get shorter: the longest first, all dimensions of a length before those at one place."""
    every = shapes([content["args"], content["kwargs"]])
    places = {(n, len(shape) - 1 - axis) for shape in every for axis, n in enumerate(shape) if n > 1}
    alone = [(length, None) for length in sorted({n for n, _ in places}, reverse=True)]
    return [*alone, *sorted(places, reverse=True)]


def shapes(node: Any) -> list[list[int]]:
    """The shapes of all tensors."""
    if isinstance(node, dict) and "tensor" in node:
        return [node["tensor"]["shape"]]
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [shape for child in children for shape in shapes(child)]


def main(content: dict[str, Any], path: str) -> int:
    """The command line of the script."""
    parser = parser_of(content)
    options = parser.parse_args()
    if options.inject is None:
        # A fault is that of the device it was put into, and of no other one that is asked for.
        options.inject = content.get("inject") or "" if options.device == (content.get("device") or "") else ""
    if options.minimize and not Path(path).is_file():
        parser.error(said("minimize-needs-file"))
    folder = Path(path).resolve().parent
    trusted = reference_of(content, folder) if options.load and not options.reference else None
    try:
        sides = sides_of(content, options)
    except (ImportError, OSError, ValueError, LookupError) as problem:
        parser.error(str(problem.args[0] if isinstance(problem, (ValueError, LookupError)) else problem))
    if trusted is not None and not same(trusted, reference_of(content, folder)):
        parser.error(said("loaded-kernels-replace-reference", options.load))
    torch.manual_seed(content.get("seed", 1234))
    verdicts = []
    for iteration in range(content.get("iterations", 1)):
        print(said("script-iteration", iteration))
        print(said("script-result"))
        try:
            verdicts.append(check(Call(content, folder, iteration), sides))
        except (CannotRunError, OSError) as problem:
            sys.stdout.flush()
            print(f"{problem}.", file=sys.stderr)
            return 2
    verdict = next((word for word in ("error", "Warning") if word in verdicts), "pass")
    print(said("script-finished"))
    print(said("script-verdict", verdict, content["api"], content["propagation"], sides.device.name))
    if options.minimize and verdict == "error":
        least = minimize({**content, **chosen_options(options)}, sides, folder)
        target = Path(path).with_suffix(".min.py")
        least = each_tensor(least, lambda info: written(info, target))
        text = Path(path).read_text(encoding="utf-8").partition("\nCALL = ")[0] + ending(least)
        replace_file(target, text.encode())
        print(said("script-smallest", least["api"], shapes([least["args"], least["kwargs"]]), target))
    elif options.minimize:
        print(said("script-nothing-fails"))
    return int(verdict == "error")


#: What the command line may change of the description, with defaults from there.
OPTIONS = ("device", "dtype", "control", "inject", "load", "reference")


def help_of_options() -> dict[str, str]:
    """What each option is for."""
    return {
        "device": said("script-help-device", WORDS),
        "dtype": said("script-help-dtype", ", ".join(DTYPES)),
        "control": said("script-help-control"),
        "inject": said("script-help-inject", FAULTS),
        "load": said("script-help-load"),
        "reference": said("script-help-reference"),
    }


def parser_of(content: dict[str, Any]) -> argparse.ArgumentParser:
    """The options of the script, whose defaults are part of the description."""
    about = said("script-about", content["api"], content["propagation"])
    parser = argparse.ArgumentParser(usage="%(prog)s [options]", description=about.replace("%", "%%"))
    for name, text in help_of_options().items():
        default = None if name == "inject" else content.get(name) or ""
        parser.add_argument(f"--{name}", default=default, help=text.replace("%", "%%"))
    parser.add_argument("--minimize", action="store_true", help=said("script-help-minimize"))
    return parser


def reference_of(content: dict[str, Any], folder: Path) -> list[Any] | None:
    """What the call gives in double precision; None where it cannot be made, as its operator is not there yet."""
    try:
        torch.manual_seed(0)
        return [value for _, value in run(Call(content, folder), wide, function_of(content))]
    except Exception:
        return None


def same(first: list[Any], other: list[Any] | None) -> bool:
    """True if two references agree but for the order of sums."""
    return other is not None and all(
        not (isinstance(left, torch.Tensor) and left.is_floating_point())
        or torch.allclose(left, right, rtol=1e-9, atol=1e-12, equal_nan=True)
        for left, right in zip(first, other, strict=True)
    )


def sides_of(content: dict[str, Any], options: argparse.Namespace) -> Sides:
    """Who runs the call, as the options say. Raises ValueError, LookupError, ImportError or OSError."""
    try:
        module = loaded(options.load)
    except (ImportError, OSError) as problem:
        raise ValueError(said("script-load-failed", options.load, problem)) from None
    if options.dtype and options.dtype not in DTYPES:
        raise ValueError(said("script-dtype-unknown", options.dtype, ", ".join(DTYPES)))
    function = function_of(content, module)
    device = side_of(options.device, options.inject)
    return Sides(
        device=device,
        control=side_of(options.control) if options.control else None,
        function=function,
        reference=chosen_reference(content, options, function),
        dtype=dtype_of(DTYPES[options.dtype]) if options.dtype else device.dtype,
        autocast=dtype_of(content["autocast"]) if content.get("autocast") else None,
        # What a user registers may be what is wrong, on the CPU, too.
        kernel=None if options.load or content["type"] in ("Ops", "Function") else function,
    )


def side_of(text: str, fault: str = "") -> Side:
    """The side of these words, with this fault where they have none. Raises ValueError."""
    asked = read_fault(fault) if fault else None
    try:
        plan = read_words(text or "auto")
    except ValueError as problem:
        raise ValueError(said("script-device-wrong", text, problem, WORDS)) from None
    if plan.fault is None and asked is not None:
        plan = replace(plan, fault=asked, text=f"{plan.text}+inject:{fault}")
    if plan.fault is not None and plan.fault.kind in ("abort", "hang"):
        raise FaultError(said("script-fault-not-allowed", plan.fault.kind, FAULTS))
    return Side(plan)


def chosen_reference(
    content: dict[str, Any], options: argparse.Namespace, function: Callable[..., Any]
) -> Callable[..., Any]:
    """What the reference calls. Raises ValueError."""
    if options.reference:
        return reference_function(options.reference)
    if content["type"] != "NPU":
        return function
    # A script of such a call has a table of what some of them compute.
    known: dict[str, Callable[..., Any]] = globals().get("FORWARD", {})
    if content["name"] not in known:
        raise ValueError(said("script-needs-reference", content["name"]))
    return known[content["name"]]


def chosen_options(options: argparse.Namespace) -> dict[str, Any]:
    """What the command line said, as defaults of another script."""
    return {name: getattr(options, name) for name in OPTIONS}
