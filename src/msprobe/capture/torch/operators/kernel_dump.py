"""Level L2 on an Ascend NPU: the kernels of one API call, dumped by the device's own tool.

For the call that ``list`` names, a configuration file is written and handed to ``torch_npu``, which dumps
every kernel that runs until it is asked to stop. For a backward entry (``Functional.conv2d.0.backward``) the
call is repeated on copies of its inputs when its gradient arrives, and the backward pass of the repetition
is dumped: the training's own pass runs together with others and cannot be distinguished.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from msprobe import log, paths
from msprobe.capture.torch import private
from msprobe.capture.torch.calls.call_records import CallRecorder
from msprobe.capture.torch.calls.function_mode import CallMode, enter_mode, remove_mode
from msprobe.capture.torch.calls.names import ApiNames
from msprobe.messages import said
from msprobe.store import layout

_without_functions = private.without_functions


def npu_module() -> Any:
    """``torch_npu``, if it is there and sees a device; else None."""
    try:
        torch_npu = sys.modules.get("torch_npu") or importlib.import_module("torch_npu")
        return torch_npu if torch_npu.npu.is_available() else None
    except Exception:
        return None


class KernelDump:
    """Dumps the kernels of one call: a part of the recorder.

    Raises InvalidInputError if the settings do not name exactly one call.
    """

    def __init__(self, calls: CallRecorder, torch_npu: Any) -> None:
        self.session = session = calls.session
        self.settings = settings = session.settings
        settings.check_npu_kernel_dump()
        self.hooks = calls.hooks
        session.keeps_records = False
        self.npu = torch_npu.npu
        self.target = settings.api_list[0]
        self.backward = self.target.endswith(".backward")
        self.forward_name = self.target.removesuffix(".backward") + ".forward" if self.backward else self.target
        self._mode = CallMode(_Calls(self, calls), ApiNames(True))  # type: ignore[arg-type]

    def attach(self) -> None:
        """Begin to wait for the call."""
        enter_mode(self._mode)

    def detach(self) -> None:
        """Leave nothing behind."""
        while remove_mode(self._mode):
            pass

    # ------------------------------------------------------------ the dump

    def config_file(self) -> Path:
        """The file from which the device's tool knows what to do: ``step{N}/kernel_config[_R].json``."""
        folder = layout.step_folder(Path(self.settings.dump_path), self.session.step)
        rank = self.session.rank()
        return folder / ("kernel_config.json" if rank is None else f"kernel_config_{rank}.json")

    def begin(self) -> bool:
        """Kernels are dumped from here on; False, with a warning, if that cannot be."""
        try:
            file = self.config_file()
            folder = paths.make_folder(file.parent)
            what = {
                "dump": {
                    "dump_list": [],
                    "dump_path": str(folder.resolve()),
                    "dump_mode": "all",
                    "dump_op_switch": "on",
                }
            }
            paths.write_atomically(file, json.dumps(what, indent=1).encode())
            self.npu.synchronize()
            self.npu.init_dump()
            self.npu.set_dump(str(file))
            self.npu.synchronize()
        except Exception as error:
            self.session.fault(self.target, error)
            return False
        return True

    def end(self) -> None:
        """They are not any more."""
        try:
            self.npu.synchronize()
            self.npu.finalize_dump()
            log.info(said("kernels-dumped", self.target, self.config_file().parent))
        except Exception as error:
            self.session.fault(self.target, error)

    # ------------------------------------------------------------ backward

    def watch_backward(self, call: _Repeatable, result: Any) -> None:
        """When the gradient of ``result`` arrives, repeat the call and dump its backward pass."""
        output = _first_with_gradient(result)
        if output is None:
            log.warning(said("kernel-dump-without-gradient", self.target))
            return
        generation, slot = self.session.generation, output.output_nr

        def arrive(received: Sequence[Any]) -> None:
            if generation == self.session.generation and received[slot] is not None:
                self.session.guard(self._repeat, call, received[slot])

        self.hooks.before(output.grad_fn, arrive)

    def _repeat(self, call: _Repeatable, gradient: torch.Tensor) -> None:
        with _without_functions(), torch.enable_grad():
            output = _first_with_gradient(call.function(*call.args, **call.kwargs))
            if output is None:
                return
            if self.begin():
                try:
                    torch.autograd.backward([output], [gradient.detach().clone()])
                finally:
                    self.end()


class _Repeatable:
    """A call, with copies of its inputs."""

    __slots__ = ("among_modes", "args", "function", "kwargs")

    among_modes: bool  # noted by the function mode

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.function = function
        self.args = [_copied(value) for value in args]
        self.kwargs = {key: _copied(value) for key, value in kwargs.items()}


class _Calls:
    """What the mode says of calls: numbers them, and picks out the one that is wanted."""

    def __init__(self, dump: KernelDump, calls: CallRecorder) -> None:
        self.dump = dump
        self.session = calls.session

    def begin_call(self, key: str, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
        """Before the call; None if it is not the wanted one."""
        dump = self.dump
        if f"{key}.{self.session.number(key)}.forward" != dump.forward_name:
            return None
        if self.session.filter is not None:
            self.session.filter.wants_call(dump.target)  # so that it counts as met
        self.session.recorded_anything = True
        if not dump.backward:
            return dump if dump.begin() else None
        # The mode is about to make this call; arguments as the user gave them would not do to repeat it.
        made = sys._getframe(1).f_locals
        return self.session.guard(_Repeatable, made["func"], made["args"], made["kwargs"] or {})

    def end_call(self, call: Any, result: Any) -> None:
        """After the call."""
        if isinstance(call, KernelDump):
            call.end()
        else:
            self.session.guard(self.dump.watch_backward, call, result)

    def fail_call(self, call: Any, error: BaseException) -> None:
        """The call raised."""
        if isinstance(call, KernelDump):
            call.end()


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    return value


def _first_with_gradient(result: Any) -> torch.Tensor | None:
    for value in result if isinstance(result, (list, tuple)) else (result,):
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            return value
    return None
