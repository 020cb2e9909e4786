"""What a call is of: the function that a record names, and what a user loads for it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from msprobe.messages import said


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
        raise ImportError(said("file-is-no-python", path))
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
        raise ValueError(said("reference-form", text))
    function = getattr(loaded(file), name, None)
    if not callable(function):
        raise ValueError(said("reference-not-in-file", file, name))
    return function  # type: ignore[no-any-return]


def function_of(content: dict[str, Any], module: Any = None) -> Callable[..., Any]:
    """The function of the description; ``module`` is what was loaded. Raises LookupError where there is none."""
    kind, name = content["type"], content["name"]
    if kind == "Ops":
        return operator_of(name)
    if kind == "Function":
        return class_of(name, module).apply  # type: ignore[no-any-return]
    if kind == "NPU":
        return npu_function(name)
    spaces: dict[str, Any] = {"Functional": torch.nn.functional, "Tensor": torch.Tensor, "Torch": torch}
    spaces["VF"] = getattr(torch, "_VF", None)
    function = spaces[kind]
    *parents, last = name.split(".")
    for part in parents:
        function = getattr(function, part, None)
    # Functions of these modules are recorded without their names; one is called like its module.
    places = [function, torch.linalg, torch.fft, torch.special] if function is torch else [function]
    all_found = [getattr(place, last) for place in places if hasattr(place, last)]
    function = next((space_found for space_found in all_found if not isinstance(space_found, ModuleType)), None)
    if function is None:
        raise LookupError(said("function-not-in-torch", torch.__version__, kind, name))
    return function if callable(function) else lambda tensor: function.__get__(tensor)


def npu_function(name: str) -> Callable[..., Any]:
    """A function of torch_npu. Raises LookupError."""
    try:
        function: Callable[..., Any] = getattr(importlib.import_module("torch_npu"), name)
    except (ImportError, AttributeError) as problem:
        raise LookupError(said("torch-npu-lacks-function", name, problem)) from None
    return function


def operator_of(name: str) -> Callable[..., Any]:
    """The operator of ``torch.ops`` that is recorded as ``namespace_operator``."""
    for place in (place for place, letter in enumerate(name) if letter == "_" and place):
        packet: Any = getattr(getattr(torch.ops, name[:place]), name[place + 1 :], None)
        if type(packet).__name__ == "OpOverloadPacket" and computes(packet):
            operator: Callable[..., Any] = packet
            return operator
    raise LookupError(said("operator-not-registered", name))


def computes(packet: Any) -> bool:
    """True for an operator of tensors. What takes none and gives none acts on the process, and what takes the name of a
    file reads or writes it.
    """
    schemas = [getattr(packet, name)._schema for name in packet.overloads()]
    named = {argument.name for schema in schemas for argument in schema.arguments if "str" in str(argument.type)}
    types = [str(argument.type) for schema in schemas for argument in (*schema.arguments, *schema.returns)]
    # A dictionary of tensors is what a context of the process holds.
    takes_tensors = any("Tensor" in text and "Dict" not in text for text in types)
    return takes_tensors and not any(word in name for name in named for word in ("file", "path", "url", "command"))


def class_of(name: str, module: Any) -> Any:
    """The class of a custom Function: that of the module that was loaded, or of what that imports."""
    base = torch.autograd.Function
    own = getattr(module, name, None)
    if isinstance(own, type) and issubclass(own, base):
        return own
    classes, todo = [], list(base.__subclasses__())
    while todo:
        subclass = todo.pop()
        todo += subclass.__subclasses__()
        classes += [subclass] if subclass.__name__ == name and not subclass.__module__.startswith("torch.") else []
    if len(classes) == 1:
        return classes[0]
    raise LookupError(
        said("function-class-loaded-often", len(classes)) if classes else said("function-class-not-loaded")
    )
