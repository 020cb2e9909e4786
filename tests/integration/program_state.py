"""Run a program as Python would and write down the state in which it ends: ``program_state.py FILE WORDS...``.

WORDS: a script and its arguments, or ``msprobe`` and its arguments. When everything that the program and msprobe have
registered at exit has run, FILE gets a json of texts: for all that hangs on the globals of the program, by its path,
what it holds (tensors with gradients, strides and bits; modules with their hooks; optimizers with states), and the
state of random generators and of torch's switches.
"""

from __future__ import annotations

import atexit
import builtins
import collections
import hashlib
import json
import os
import random
import sys
import types
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

PLAIN = (int, float, complex, str, bytes, bool, type(None), torch.dtype, torch.layout, torch.Size)
HOOKS = "_forward_hooks _forward_pre_hooks _backward_hooks _backward_pre_hooks _state_dict_hooks".split()
GENERATED = "__builtins__ __loader__ __spec__ __file__ __cached__".split()


def described(thing: Any, path: str, seen: dict[int, tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """All that hangs on ``thing``, as paths and texts; what was met before is named by its first path."""
    if isinstance(thing, PLAIN):
        yield path, repr(thing).replace(os.getcwd(), "FOLDER")
        return
    if id(thing) in seen:
        yield path, f"is {seen[id(thing)][0]}"
        return
    seen[id(thing)] = path, thing  # held, so that no other thing gets its place
    if isinstance(thing, torch.Tensor):
        yield path, _tensor(thing)
        if thing.is_leaf and thing.grad is not None:
            yield from described(thing.grad, f"{path}.grad", seen)
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            yield f"{path}.{name}", str(len(getattr(thing, name, None) or ()))
    elif isinstance(thing, np.ndarray):
        yield path, f"{thing.dtype} {thing.shape} {hashlib.sha256(thing.tobytes()).hexdigest()}"
    elif isinstance(thing, dict):
        yield path, f"{type(thing).__name__} of {len(thing)}"
        for number, (key, value) in enumerate(thing.items()):
            # Handles of hooks are counted up for the whole process.
            is_name = isinstance(key, PLAIN) and "_hooks'" not in path
            name = repr(key) if is_name else f"key {number}"
            if not isinstance(key, PLAIN):
                yield from described(key, f"{path}.{name}", seen)
            yield from described(value, f"{path}[{name}]", seen)
    elif isinstance(thing, (list, tuple, set, frozenset, collections.deque)):
        yield path, f"{type(thing).__name__} of {len(thing)}"
        for number, value in enumerate(thing):
            yield from described(value, f"{path}[{number}]", seen)
    elif isinstance(thing, torch.Generator):
        yield path, _tensor(thing.get_state())
    elif _has_state(thing):
        yield path, type(thing).__qualname__
        # Addresses, and numbers that are counted up for the whole process.
        own = {name: value for name, value in vars(thing).items() if name not in ("_torchdynamo_wrapper_id", "id")}
        yield from described(own, f"{path} own", seen)
        yield f"{path} methods", str([name for name in vars(thing) if callable(getattr(type(thing), name, None))])


def _has_state(thing: Any) -> bool:
    """Objects of the program and of torch; not types, functions, files, threads."""
    module = type(thing).__module__
    return (
        hasattr(thing, "__dict__")
        and not isinstance(
            thing, (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
        )
        and (module.split(".")[0] in ("torch", "__main__") or isinstance(thing, (nn.Module, torch.optim.Optimizer)))
    )


def _tensor(tensor: torch.Tensor) -> str:
    kind = f"{type(tensor).__name__} {tensor.dtype} {tuple(tensor.shape)} {tensor.layout} grad={tensor.requires_grad}"
    if tensor.is_meta:
        return kind
    if tensor.layout is torch.sparse_coo:
        inner = tensor.detach()
        bits = _bits(inner._indices()) + _bits(inner._values())  # as they are stored
    elif tensor.layout is torch.strided:
        version = "" if tensor.is_inference() else tensor._version
        made_by = "" if tensor.grad_fn is None else tensor.grad_fn.name()
        kind += f" {tensor.stride()} v{version} {made_by}"
        bits = _bits(tensor.detach())
    else:
        bits = b""
    return f"{kind} {hashlib.sha256(bits).hexdigest()}"


def _bits(tensor: torch.Tensor) -> bytes:
    if tensor.dtype is torch.bool or not tensor.numel():
        return str(tensor.tolist()).encode()
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def switches() -> dict[str, str]:
    """What is on and off in torch, and the state of random generators."""
    python, numpy = random.getstate(), np.random.get_state()
    return {
        "random of Python": hashlib.sha256(repr(python).encode()).hexdigest(),
        "random of numpy": hashlib.sha256(repr(numpy).encode()).hexdigest(),
        "random of torch": _tensor(torch.get_rng_state()),
        "grad mode": repr((torch.is_grad_enabled(), torch.is_inference_mode_enabled())),
        "autocast": repr((torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled())),
        "default type": repr(torch.get_default_dtype()),
        "deterministic": repr(torch.are_deterministic_algorithms_enabled()),
        "threads": repr(torch.get_num_threads()),
        "anomaly": repr(torch.is_anomaly_enabled()),
        "call of modules": nn.Module.__call__.__qualname__,
        "hooks of all modules": repr([len(vars(nn.modules.module)[f"_global{name}"]) for name in HOOKS[:4]]),
        "folder": os.path.basename(os.getcwd()),
    }


def write(path: str) -> None:
    """Write the state of the main program, as it is now."""
    seen: dict[int, tuple[str, Any]] = {}
    found = switches()
    for name, value in list(vars(sys.modules["__main__"]).items()):
        if name not in GENERATED:
            found.update(described(value, name, seen))
    Path(path).write_text(json.dumps(found, indent=1))


def execute(words: list[str]) -> None:
    """As Python runs a script, or as the command ``msprobe`` runs."""
    random.seed(0)  # a program that seeds nothing draws other numbers each time
    np.random.seed(0)
    sys.argv = list(words)
    if words[0] == "msprobe":
        from msprobe.cli import main as command

        sys.exit(command(words[1:]))
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __spec__=None, __annotations__={}, __file__=words[0], __cached__=None)
    main.__dict__["__loader__"] = SourceFileLoader("__main__", words[0])
    sys.modules["__main__"] = main
    sys.path[0] = os.path.dirname(os.path.realpath(words[0]))
    exec(compile(Path(words[0]).read_bytes(), words[0], "exec", dont_inherit=True), main.__dict__)


if __name__ == "__main__":
    atexit.register(write, sys.argv[1])  # the first to be registered is the last to run
    execute(sys.argv[2:])
