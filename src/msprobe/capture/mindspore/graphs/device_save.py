"""``save`` and ``save_grad`` on Ascend, whose graphs cannot call Python: MindSpore's ``TensorDump`` writes the files.

In the path of a file ``{step}`` and ``{rank}`` are filled in by MindSpore; it numbers the files itself. The compiler
reads the source of what is called here.
"""

from __future__ import annotations

import importlib
from typing import Any

from mindspore import ops
from mindspore.ops import constexpr

from msprobe.capture.mindspore.graphs.execution import device
from msprobe.errors import InvalidInputError
from msprobe.messages import said

_dump = ops.TensorDump()
# Since MindSpore 2.7.
_dump_gradient: Any = ops.DumpGradient() if hasattr(ops, "DumpGradient") else None


@constexpr(check=False)  # type: ignore[untyped-decorator]
def device_writes() -> bool:
    """True where the device writes files itself."""
    return device() == "Ascend"


@constexpr(check=False)  # type: ignore[untyped-decorator]
def _has_dump_gradient() -> bool:
    return _dump_gradient is not None


@constexpr(check=False)  # type: ignore[untyped-decorator]
def device_path(folder: Any, name: Any) -> str:
    """Where a value goes; MindSpore puts type, number and ``.npy`` behind."""
    if not isinstance(folder, str) or not isinstance(name, str):
        raise InvalidInputError(said("save-names-wrong", folder, name))
    # A "/" in a name would make a folder.
    return f"{folder}/{{step}}/{{rank}}/{name.replace('/', '_')}"


def device_save(path: str, data: Any) -> None:
    """Write a tensor."""
    _dump(path, data)


def device_save_grad(path: str, data: Any) -> Any:
    """The same tensor; its gradient is written when it comes."""
    if _has_dump_gradient():
        return _dump_gradient(path, data, "out")
    return _with_inserted(path, data)


def _with_inserted(path: str, data: Any) -> Any:
    """For MindSpore before 2.7."""

    def inserted(gradient: Any) -> Any:
        _dump(path, gradient)
        return gradient

    return ops.InsertGradientOf(inserted)(data)


def device_step() -> None:
    """The next step begins: MindSpore counts it, too."""
    if not device_writes():
        return
    try:
        count = importlib.import_module("mindspore._c_expression")._dump_step
    except AttributeError:
        return
    count(1)
