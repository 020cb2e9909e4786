"""The part of a script that knows where a call runs: a device, what is switched there, and faults that are put in.

It stands between :mod:`msprobe.precheck.standalone` and :mod:`msprobe.precheck.standalone_main` in the script.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from msprobe.precheck.standalone_types import dtype_of

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}
DTYPES |= {"fp64": "float64", "double": "float64"}
DTYPES |= {name: name for name in ("bfloat16", "float16", "float32", "float64")}
FAULTS = "scale=1e-3, nan@0, inf@0, drop-tail, tf32, swap"
WORDS = "threads=N, mkldnn=off, deterministic, dtype=bf16, autocast=bf16, compile, inject:FAULT"


class Side:
    """Who runs the call: ``cpu+threads=1``, ``cuda:0+autocast=bf16`` or ``plugin:package.module:function``.

    ``fault``: one of those of FAULTS, or none. Raises ValueError with a sentence for words that are not known, and for
    a device that is not there.
    """

    def __init__(self, text: str, fault: str = "") -> None:
        self.plugin: Callable[..., Any] | None = None
        self.threads = 0
        self.mkldnn, self.deterministic, self.compiled = True, False, False
        self.dtype: torch.dtype | None = None
        self.autocast: torch.dtype | None = None
        #: The types of the results of the last call.
        self.gave: list[torch.dtype] = []
        first, *words = ("cpu",) if text.startswith("plugin:") else text.split("+")
        if text.startswith("plugin:"):
            self.plugin = plugin_of(text)
        if first.startswith("inject:"):
            first, words = "auto", [first, *words]
        for word in words:
            fault = self.switch(word, text) or fault
        self.fault = fault_of(fault)
        self.device = device_of(first or "auto")
        words += [f"inject:{fault}"] if fault and f"inject:{fault}" not in words else []
        self.text = "+".join([f"plugin {text[7:]}" if self.plugin else str(self.device), *words])

    def switch(self, word: str, text: str) -> str:
        """Note one word behind the device; gives the fault that it asks for."""
        name, _, value = word.partition("=")
        if word.startswith("inject:"):
            return word.removeprefix("inject:")
        if name == "threads" and value.isdigit() and int(value) > 0:
            self.threads = int(value)
        elif name == "mkldnn" and value in ("on", "off"):
            self.mkldnn = value == "on"
        elif word == "deterministic":
            self.deterministic = True
        elif word == "compile":
            self.compiled = True
        elif name == "dtype" and value in DTYPES:
            self.dtype = dtype_of(DTYPES[value])
        elif name == "autocast" and DTYPES.get(value) in ("bfloat16", "float16"):
            self.autocast = dtype_of(DTYPES[value])
        else:
            raise ValueError(f"{text!r}: {word!r} is not known; allowed behind a device, each with a +: {WORDS}")
        return ""

    def calling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function as this side calls it."""
        plugin = self.plugin
        if plugin is not None:
            return lambda *args, **kwargs: plugin(function, args, kwargs)
        if not self.compiled:
            return function
        # What was compiled before is forgotten: behind a few variants the compiler would run the function as it is.
        torch.compiler.reset()
        return torch.compile(lambda *args, **kwargs: function(*args, **kwargs), fullgraph=True, dynamic=False)

    @contextlib.contextmanager
    def switched(self, autocast: torch.dtype | None = None) -> Iterator[None]:
        """What is switched while this side runs; ``autocast``: the type in which the recorded call was."""
        threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
        with contextlib.ExitStack() as stack:
            if self.threads:
                torch.set_num_threads(self.threads)
                stack.callback(torch.set_num_threads, threads)
            if self.deterministic:
                torch.use_deterministic_algorithms(True, warn_only=True)
                stack.callback(torch.use_deterministic_algorithms, deterministic)
            if not self.mkldnn:
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
                stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            if self.autocast or autocast:
                stack.enter_context(torch.autocast(self.device.type, dtype=self.autocast or autocast))
            yield

    def faulty_input(self, tensor: torch.Tensor) -> torch.Tensor:
        """An argument as a device gets it that multiplies with 10 bits of mantissa."""
        if self.fault != "tf32" or tensor.dtype is not torch.float32 or not tensor.numel():
            return tensor
        return (tensor.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)

    def swapped(self, args: list[Any]) -> list[Any]:
        """Arguments with the first two of one shape and type exchanged."""
        places = [place for place, value in enumerate(args) if isinstance(value, torch.Tensor)]
        for first, second in pairwise(places if self.fault == "swap" else []):
            a, b = args[first], args[second]
            if a.shape == b.shape and a.dtype == b.dtype:
                return [*args[:first], b, *args[first + 1 : second], a, *args[second + 1 :]]
        return args

    def spoiled(self, value: Any) -> Any:
        """A result with the fault that was asked for."""
        kind, _, amount = self.fault.replace("@", "=").partition("=")
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.numel() == 0:
            return value
        if kind == "scale":
            return value * (1 + float(amount))
        flat = value.clone().contiguous()
        if kind in ("nan", "inf"):
            flat.view(-1)[int(amount or 0) % flat.numel()] = float(kind)
        if kind == "drop-tail":
            flat.view(-1)[-max(1, flat.numel() // 16) :] = 0
        return flat


def fault_of(text: str) -> str:
    """The fault as it is asked for. Raises ValueError for one that is not known."""
    kind, _, amount = text.replace("@", "=").partition("=")
    with contextlib.suppress(ValueError):
        if text in ("", "tf32", "swap", "drop-tail", "nan", "inf"):
            return text
        if kind == "scale" and math.isfinite(float(amount)) and float(amount):
            return text
        if kind in ("nan", "inf") and "@" in text and int(amount) >= 0:
            return text
    raise ValueError(f"the fault {text!r} is not known; allowed: {FAULTS}")


def device_of(text: str) -> torch.device:
    """The device of a word as ``cpu``, ``cuda:0`` or ``auto``. Raises ValueError if it is not there."""
    kind, _, number = text.partition(":")
    with contextlib.suppress(ImportError):
        __import__("torch_npu")
    if kind == "auto":
        kind = next((one for one in ("npu", "cuda", "xpu", "mps") if is_there(one)), "") or accelerator()
        text = f"{kind}:{number or 0}" if kind in ("npu", "cuda", "xpu") else kind
    try:
        device = torch.device(text)
    except RuntimeError:
        raise ValueError(f"{text!r} is no device; allowed: cpu, cuda:0, npu:0, xpu, mps") from None
    if not is_there(device.type):
        raise ValueError(f"the device {text!r} is not available here")
    try:
        torch.empty(0, device=device)
    except RuntimeError as problem:
        raise ValueError(f"the device {text!r} cannot be used: {str(problem).splitlines()[0]}") from None
    return device


def accelerator() -> str:
    """The kind of device that torch has beside the CPU, under any name; the CPU without one, or before torch 2.6."""
    known = getattr(torch, "accelerator", None)
    found = known.current_accelerator() if known is not None and known.is_available() else None
    return found.type if found is not None and is_there(found.type) else "cpu"


def is_there(kind: str) -> bool:
    """True if there are devices of a kind."""
    module = torch.backends.mps if kind == "mps" else getattr(torch, kind, None)
    return kind == "cpu" or bool(module is not None and hasattr(module, "is_available") and module.is_available())


def plugin_of(text: str) -> Callable[..., Any]:
    """The function of ``plugin:package.module:function``. Raises ValueError."""
    module, _, name = text.removeprefix("plugin:").rpartition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as problem:
        raise ValueError(f"{text!r} cannot be imported: {problem}; its folder must be in PYTHONPATH") from None
    return found


def loaded(what: str) -> Any:
    """Import what registers kernels with torch: a file of Python, a shared library, or an installed module."""
    if what.endswith(".so"):
        torch.ops.load_library(what)  # type: ignore[no-untyped-call]
        return None
    if what.endswith(".py"):
        return loaded_file(Path(what).resolve(strict=True))
    return importlib.import_module(what) if what else None


def loaded_file(path: Path) -> Any:
    """Import a file by its path. Its folder is searched for modules behind all others: the user has named the file, and
    not what else lies beside it.
    """
    plain, own = path.stem, f"loaded_{path.stem}"
    for known in (sys.modules.get(plain), sys.modules.get(own)):
        if known is not None and getattr(known, "__file__", None) == str(path):
            return known
    is_free = plain.isidentifier() and plain not in sys.modules and importlib.util.find_spec(plain) is None
    name = plain if is_free else own
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no file of Python")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def reference_function(text: str) -> Callable[..., Any]:
    """The function of ``FILE.py:FUNCTION``. Raises ValueError."""
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not Path(file).is_file():
        raise ValueError(f"{text!r} must be FILE.py:FUNCTION, of a file that exists")
    found = getattr(loaded(file), name, None)
    if not callable(found):
        raise ValueError(f'"{file}" has no function {name!r}')
    return found  # type: ignore[no-any-return]


def function_of(content: dict[str, Any], module: Any = None) -> Callable[..., Any]:
    """The function of the description; ``module`` is what was loaded. Raises LookupError where there is none."""
    kind, name = content["type"], content["name"]
    if kind == "Ops":
        return operator_of(name)
    if kind == "Function":
        return class_of(name, module).apply  # type: ignore[no-any-return]
    if kind == "NPU":
        return of_npu(name)
    spaces: dict[str, Any] = {"Functional": torch.nn.functional, "Tensor": torch.Tensor, "Torch": torch}
    spaces["VF"] = getattr(torch, "_VF", None)
    found = spaces[kind]
    *parents, last = name.split(".")
    for part in parents:
        found = getattr(found, part, None)
    # Functions of these modules are recorded without their names; one is called like its module.
    places = [found, torch.linalg, torch.fft, torch.special] if found is torch else [found]
    all_found = [getattr(place, last) for place in places if hasattr(place, last)]
    found = next((one for one in all_found if not isinstance(one, ModuleType)), None)
    if found is None:
        raise LookupError(f"torch {torch.__version__} has no {kind}.{name}")
    return found if callable(found) else lambda tensor: found.__get__(tensor)


def of_npu(name: str) -> Callable[..., Any]:
    """A function of torch_npu. Raises LookupError."""
    try:
        found: Callable[..., Any] = getattr(importlib.import_module("torch_npu"), name)
    except (ImportError, AttributeError) as problem:
        raise LookupError(f"torch_npu.{name} is called, which is not here: {problem}") from None
    return found


def operator_of(name: str) -> Callable[..., Any]:
    """The operator of ``torch.ops`` that is recorded as ``namespace_operator``."""
    for place in (place for place, letter in enumerate(name) if letter == "_" and place):
        found: Any = getattr(getattr(torch.ops, name[:place]), name[place + 1 :], None)
        if type(found).__name__ == "OpOverloadPacket" and computes(found):
            operator: Callable[..., Any] = found
            return operator
    raise LookupError(f"torch has no operator that is recorded as Ops.{name}; name what registers it with --load")


def computes(packet: Any) -> bool:
    """True for an operator of tensors. What takes none and gives none acts on the process, and what takes the name of a
    file reads or writes it.
    """
    schemas = [getattr(packet, name)._schema for name in packet.overloads()]
    named = {argument.name for schema in schemas for argument in schema.arguments if "str" in str(argument.type)}
    types = [str(one.type) for schema in schemas for one in (*schema.arguments, *schema.returns)]
    # A dictionary of tensors is what a context of the process holds.
    of_tensors = any("Tensor" in text and "Dict" not in text for text in types)
    return of_tensors and not any(word in name for name in named for word in ("file", "path", "url", "command"))


def class_of(name: str, module: Any) -> Any:
    """The class of a custom Function: that of the module that was loaded, or of what that imports."""
    base = torch.autograd.Function
    own = getattr(module, name, None)
    if isinstance(own, type) and issubclass(own, base):
        return own
    found, todo = [], list(base.__subclasses__())
    while todo:
        one = todo.pop()
        todo += one.__subclasses__()
        found += [one] if one.__name__ == name and not one.__module__.startswith("torch.") else []
    if len(found) == 1:
        return found[0]
    many = f"{len(found)} of them are" if found else "none is"
    raise LookupError(f"a record of a Function has its class' name alone, and {many} loaded: name its file with --load")
