"""What the name of a record says: which call of what, in which direction.

==================================================  ============================
name                                                 meaning
==================================================  ============================
``{Prefix}.{api}.{n}.forward`` / ``.backward``       call ``n`` of an API
``Module.{path}.{Class}.forward.{n}`` / ``backward`` pass ``n`` of a module (``Cell`` in MindSpore)
``Module.{path}.{Class}.parameters_grad[.{k}]``      gradients of its parameters (of backward pass ``k``)
``Optimizer.{Class}.{n}.forward``                    step ``n`` of an optimizer
``{variable}.{n}.debug``                             a saved variable
==================================================  ============================
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

EntryKind = Literal["api", "module", "parameters", "optimizer", "saved", "unknown"]

MODULES = ("Module", "Cell")
_WRAPPERS = frozenset(("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"))


class EntryName(NamedTuple):
    """The parts of a record's name.

    ``stem`` is the name without number and direction: ``Functional.linear``, ``Module.fc.Linear``. ``path`` is
    a module's path and ``owner`` its class, an API's prefix, or the optimizer's class.
    """

    kind: EntryKind
    stem: str
    number: int | None
    direction: str
    path: str = ""
    owner: str = ""


@lru_cache(1 << 17)  # the names of a step are those of the other side, and of the next step
def read_name(name: str) -> EntryName:
    """Take a record's name apart. A name that follows no rule has the kind ``unknown``.

    >>> read_name("Functional.linear.3.forward").stem
    'Functional.linear'
    >>> read_name("Module.blocks.0.fc.Linear.backward.1").path
    'blocks.0.fc'
    """
    parts = name.split(".")
    last = parts[-1]
    if parts[0] in MODULES:
        if last in ("parameters_grad",) or (len(parts) > 2 and parts[-2] == "parameters_grad" and last.isdigit()):
            own = parts[:-1] if last == "parameters_grad" else parts[:-2]
            number = int(last) if last.isdigit() else None
            return EntryName("parameters", ".".join(own), number, "gradient", ".".join(own[1:-1]), own[-1])
        if len(parts) > 3 and last.isdigit() and parts[-2] in ("forward", "backward"):
            own = parts[:-2]
            return EntryName("module", ".".join(own), int(last), parts[-2], ".".join(own[1:-1]), own[-1])
    if last in ("forward", "backward") and len(parts) > 2 and parts[-2].isdigit():
        stem = ".".join(parts[:-2])
        if parts[0] == "Optimizer":
            return EntryName("optimizer", stem, int(parts[-2]), "optimizer", owner=stem.removeprefix("Optimizer."))
        return EntryName("api", stem, int(parts[-2]), last, owner=parts[0])
    if last == "debug" and len(parts) > 2 and parts[-2].isdigit():
        return EntryName("saved", ".".join(parts[:-2]), int(parts[-2]), "forward")
    return EntryName("unknown", name, None, "forward")


def without_call_number(name: str) -> str:
    """The name of a call with ``*`` in place of its number; any other name as it is.

    >>> without_call_number("Functional.linear.3.forward")
    'Functional.linear.*.forward'
    """
    parts = name.split(".")
    if len(parts) > 2 and parts[-2].isdigit():
        parts[-2] = "*"
    return ".".join(parts)


@lru_cache(1 << 16)
def plain_path(path: str) -> str:
    """A module's path without what wrappers (DDP, torch.compile, FSDP, checkpointing) put in front of names.

    >>> plain_path("module.blocks.0._checkpoint_wrapped_module.fc")
    'blocks.0.fc'
    """
    parts = path.split(".")
    if _WRAPPERS.isdisjoint(parts):
        return path
    return ".".join(part for part in parts if part not in _WRAPPERS)


_SAME = {
    "truediv": "div",
    "true_divide": "div",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "power": "pow",
    "bmm": "matmul",
    "mm": "matmul",
    "concat": "cat",
    "concatenate": "cat",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "t": "transpose",
    "view": "reshape",
    "view_as": "reshape",
    "_softmax": "softmax",
}
_OPERATORS = frozenset("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split())


@lru_cache(4096)
def operation(stem: str) -> str:
    """What an API computes, whichever way it is called: ``Tensor.__radd__``, ``Torch.add`` and ``Tensor.add_``
    are all ``add``, and so is ``Ops.aten_add``, the operator itself.
    """
    word = stem.rpartition(".")[2]
    if stem.startswith("Ops."):
        word = word.removeprefix("aten_")
    if word.startswith("__") and word.endswith("__"):
        word = word[2:-2]
        if word[:1] in "ri" and word[1:] in _OPERATORS:
            word = word[1:]
    elif word.endswith("_") and len(word) > 1:
        word = word.rstrip("_")
    return _SAME.get(word, word)


@lru_cache(4096)
def writes_in_place(stem: str) -> bool:
    """True if a call of this name writes to its first argument."""
    word = stem.rpartition(".")[2]
    if word.startswith("__") and word.endswith("__"):
        word = word[2:-2]
        return word == "setitem" or (word[:1] == "i" and word[1:] in _OPERATORS)
    return word.endswith("_") and not word.endswith("__") and word not in ("requires_grad_", "retain_grad_")
