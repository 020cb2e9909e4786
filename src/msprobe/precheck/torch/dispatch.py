"""``PtdbgDispatch``: each operator of a block of a program, forward or backward, once more by another executor."""

from __future__ import annotations

import os
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from msprobe import log
from msprobe.capture.torch import private
from msprobe.capture.torch.operators.dispatch_operators import describe_operator, written
from msprobe.capture.torch.recorder import RANKS
from msprobe.config.mistakes import did_you_mean
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.messages import joined, said
from msprobe.paths import check_output_folder
from msprobe.precheck.dispatch.files import DispatchFiles, ResultRow
from msprobe.precheck.dispatch.judging import Array, judge
from msprobe.precheck.executors import executor_of
from msprobe.precheck.side.trees import leaves_of, map_tree
from msprobe.precheck.torch.draws import is_drawing
from msprobe.precheck.torch.machine import Machine

MODES = ("all", "list", "auto", "OFF")
# What moves or makes values without computing any, and what reads them back: the list of 8.1.1 but for those that do
# compute, and what is like them.
_LEFT_OUT = frozenset(
    """_local_scalar_dense _pin_memory _to_copy _unsafe_view allreduce_ clone contiguous copy_ detach empty empty_like
    empty_strided empty_permuted index_put_ lift_fresh new_empty new_empty_strided new_full new_ones new_zeros
    npu_dtype_cast ones ones_like permute rand rand_like randint randint_like randn randn_like randperm resize_
    scalar_tensor select set_ split_with_sizes to transpose unbind view zero zero_ zeros zeros_like full full_like
    is_same_size alias _reshape_alias as_strided record_stream _foreach_copy_""".split()
)
# What these leave for their backward can be read by the very kernel alone, in its own type.
_OWN_FORM = frozenset(
    """mkldnn_rnn_layer mkldnn_rnn_layer_backward _cudnn_rnn _cudnn_rnn_backward miopen_rnn
    miopen_rnn_backward""".split()
)
_WIDER = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}


class DispatchException(InvalidInputError):
    """An argument of PtdbgDispatch is not allowed."""


class PtdbgDispatch(private.DispatchMode):  # type: ignore[misc]
    """Compare each operator of a block with the same operator on the CPU, in the next wider type::

        with PtdbgDispatch(dump_mode="auto", dump_path="out"):
            loss = model(batch)          # or loss.backward()

    The program goes on with what its device computes. Random operators, and those that only move values or communicate,
    are left out.

    ``dump_mode``: whose values are saved: "all", those in ``api_list`` ("list"), those that do not agree ("auto"), none
    ("OFF"). ``dump_path``: an existing folder; a new one is made in it. ``api_list``: names of operators (``add``,
    ``native_layer_norm``). ``debug``: print each operator. ``tag``: a part of the folder's name. ``process_num``: so
    many threads compare while the program goes on, up to a quarter of the processors; 0: it waits. ``bench``: who is
    compared with, in the words of ``--control``: ``cpu``, ``cuda:0``, ``cpu+mkldnn=off``,
    ``plugin:package.module:function``.

    Raises DispatchException for what is not allowed.
    """

    def __init__(
        self,
        dump_mode: str = "OFF",
        api_list: Sequence[str] | None = None,
        debug: bool = False,
        dump_path: str | os.PathLike[str] | None = None,
        tag: str | None = None,
        process_num: int = 0,
        bench: str = "cpu",
    ) -> None:
        super().__init__()
        names, self._bench = _checked(dump_mode, api_list, debug, dump_path, tag, process_num, bench)
        self._mode = dump_mode
        self._list = names
        self._debug = debug
        assert dump_path is not None
        self._files = DispatchFiles(check_output_folder(dump_path), tag, RANKS.current() or 0)
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(process_num, "msprobe-dispatch") if process_num else None
        self._running: list[Future[None]] = []
        self._failed = 0
        # Operators that were not compared -> how often.
        self._left: Counter[str] = Counter()

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self._files.folder

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for task in self._running:
            task.result()
        self._running.clear()
        if self._pool is not None:
            self._pool.shutdown()
        left = sum(self._left.values())
        counted = sum(self._counts.values()) - left
        more = said("operators-not-compared", left, ", ".join(sorted(self._left))) if left else ""
        log.info(said("operators-compared", counted, self._failed, more, self.folder))

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What torch calls for each operator."""
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        known = describe_operator(function)
        if name in _LEFT_OUT or known.late or known.skipped or is_drawing(function) or _is_view(function):
            return function(*args, **kwargs)
        try:
            # Before the call, which may write to what it is given.
            inputs = _mapped((args, kwargs), _home)
        except Exception as error:
            log.once(("dispatch", name), "warning", said("operator-not-compared", name, error))
            return function(*args, **kwargs)
        result = function(*args, **kwargs)
        try:
            self._compare(name, function, inputs, _mapped(_results(function, args, kwargs, result), _home))
        except Exception as error:
            log.once(
                ("dispatch", name), "warning", said("operator-could-not-be-compared", name, type(error).__name__, error)
            )
        return result

    def _compare(self, name: str, function: Any, inputs: Any, result: Any) -> None:
        with self._lock:
            number = self._counts[name] = self._counts.get(name, 0) + 1
        call = _Compared(f"{name}_{number}", name, function, inputs, result, _is_backward(), _line_of_program())
        if self._pool is None:
            self._judge(call)
        else:
            self._running.append(self._pool.submit(self._judge, call))

    def _judge(self, call: _Compared) -> None:
        who = said("the-cpu") if self._bench.name == "cpu" else self._bench.name
        if call.operator in _OWN_FORM:
            self._leave(call, said("operator-own-form"))
            return
        try:
            bench = call.bench(self._bench)
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            self._leave(call, said("operator-cannot-run", who, type(error).__name__, text))
            return
        rows = call.rows(bench)
        if not rows:
            self._leave(call, said("operator-gives-no-tensor"))
            return
        agrees = all(row.judgement.agrees for row in rows)
        self._files.add(call.name, call.is_backward, rows)
        if not agrees:
            with self._lock:
                self._failed += 1
            log.warning(
                said(
                    "operator-disagrees",
                    call.name,
                    who,
                    next(r.judgement.message for r in rows if not r.judgement.agrees),
                )
            )
        elif self._debug:
            log.info(said("operator-agrees", call.name, who))
        wanted = {"all": True, "list": call.operator in self._list, "auto": not agrees}.get(self._mode, False)
        if wanted:
            self._save(call, bench)

    def _leave(self, call: _Compared, why: str) -> None:
        """It is not compared."""
        with self._lock:
            self._left[call.operator] += 1
        self._files.add(call.name, call.is_backward, [], why)

    def _save(self, call: _Compared, bench: list[Any]) -> None:
        args, kwargs = call.inputs
        for place, value in enumerate(leaves_of(args)):
            self._save_one("npu", f"{call.name}_input.{place}", value)
        for word, value in kwargs.items():
            self._save_one("npu", f"{call.name}_input_{word}", value)
        for side, values in (("npu", call.results), ("cpu", bench)):
            for place, value in enumerate(values):
                ending = f".{place}" if len(values) > 1 else ""
                self._save_one(side, f"{call.name}_output{ending}", value)

    def _save_one(self, side: str, name: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._files.save(side, name, _array(value))


class _Compared:
    """One operator that has run: what it was given and gave, on the host."""

    def __init__(
        self, name: str, operator: str, function: Any, inputs: Any, result: Any, is_backward: bool, line: str
    ) -> None:
        self.name = name
        self.operator = operator
        self.function = function
        self.inputs = inputs
        self.results = leaves_of(result)
        self.is_backward = is_backward
        self.line = line

    def bench(self, machine: Machine) -> list[Any]:
        """What another one gives in the next wider type."""
        args, kwargs = self._widened(machine.device)
        run = machine.calling(self.function)
        with torch.no_grad(), machine.switched():
            leaves = leaves_of(_results(self.function, args, kwargs, run(*args, **kwargs)))
        return [_home(value) for value in leaves]

    def _widened(self, device: torch.device) -> Any:
        """The arguments in the next wider type, one for all: what takes two types may not take the wider two."""
        given = {leaf.dtype for leaf in leaves_of(list(self.inputs)) if isinstance(leaf, torch.Tensor)}
        widest = torch.float64 if torch.float32 in given or torch.complex64 in given else torch.float32
        wider = {dtype: to.to_complex() if dtype.is_complex else widest for dtype, to in _WIDER.items()}

        def change(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                # Copied once more: an operator may write to it, and what was given may be saved.
                return value.to(device, wider.get(value.dtype, value.dtype), copy=True)
            if isinstance(value, torch.dtype):
                return wider.get(value, value)
            return device if isinstance(value, torch.device) else value

        args, kwargs = _mapped(self.inputs, change)
        names = [argument.name for argument in self.function._schema.arguments]
        if "half_to_float" in names:
            # It is for halves, which there are none of any more.
            args = type(args)(
                False if name == "half_to_float" else value for name, value in zip(names, args, strict=False)
            )
        return args, kwargs

    def rows(self, bench: list[Any]) -> list[ResultRow]:
        """A row for each tensor among the results."""
        rows = []
        for place, (ours, theirs) in enumerate(zip(self.results, bench, strict=True)):
            if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor):
                continue
            device, other = _array(ours), _array(theirs)
            dtypes = str(ours.dtype), str(theirs.dtype)
            kind = self._kind(ours.dtype)
            name = f"{self.name}_output.{place}" if len(self.results) > 1 else f"{self.name}_output"
            rows.append(ResultRow(name, judge(device, other, kind), device, other, dtypes, self.line))
        return rows

    def _kind(self, dtype: torch.dtype) -> str:
        """The type by which a result is judged. Gradients of float32 weights that come from a half, as those of norms
        under autocast, have been rounded to it.
        """
        if self.operator.endswith("_backward") and dtype is torch.float32:
            given = [leaf.dtype for leaf in leaves_of(list(self.inputs)) if isinstance(leaf, torch.Tensor)]
            dtype = next((dtype for dtype in given if dtype in (torch.float16, torch.bfloat16)), dtype)
        return {torch.complex64: "float32", torch.complex128: "float64"}.get(dtype, str(dtype).removeprefix("torch."))


def _checked(
    dump_mode: Any, api_list: Any, debug: Any, dump_path: Any, tag: Any, process_num: Any, bench: Any
) -> tuple[frozenset[str], Machine]:
    """All mistakes of the arguments at once. Raises DispatchException."""
    mistakes: list[str] = []
    if dump_mode not in MODES:
        near = did_you_mean(dump_mode, MODES)
        mistakes.append(said("dispatch-mode-wrong", ", ".join(MODES), dump_mode, near))
    if not isinstance(dump_path, (str, os.PathLike)) or not os.path.isdir(dump_path):
        mistakes.append(said("dispatch-path-wrong", dump_path))
    if api_list is not None and not (
        isinstance(api_list, (list, tuple)) and all(isinstance(name, str) for name in api_list)
    ):
        mistakes.append(said("dispatch-list-wrong", api_list))
    elif dump_mode == "list" and not api_list:
        mistakes.append(said("dispatch-list-missing"))
    if not isinstance(debug, bool):
        mistakes.append(said("dispatch-debug-wrong", debug))
    if tag is not None and not isinstance(tag, str):
        mistakes.append(said("dispatch-tag-wrong", tag))
    most = max(1, ((os.cpu_count() or 1) + 1) // 4)
    if isinstance(process_num, bool) or not isinstance(process_num, int) or not 0 <= process_num <= most:
        mistakes.append(said("dispatch-processes-wrong", most, process_num))
    machine = _machine_of(bench, mistakes)
    if mistakes or machine is None:
        raise DispatchException(said("dispatch-arguments-wrong", joined("; ", mistakes)))
    names = frozenset(api_list or ())
    unknown = sorted(name for name in names if not hasattr(torch.ops.aten, name))
    if unknown:
        log.warning(said("api-list-unknown", ", ".join(unknown)))
    return names, machine


def _machine_of(bench: Any, mistakes: list[str]) -> Machine | None:
    if not isinstance(bench, str):
        mistakes.append(said("dispatch-bench-wrong", bench))
        return None
    try:
        executor = executor_of(bench, "--control")
        if executor.python or executor.compiled or executor.dtype or executor.autocast:
            mistakes.append(said("dispatch-bench-not-possible", bench))
            return None
        return Machine(executor)
    except MsprobeError as problem:
        mistakes.append(problem.message.replace("--control", "bench").rstrip("."))
        return None


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Arguments or results with what names or holds numbers replaced: tensors, types and devices."""
    return map_tree(value, "", lambda leaf, _: change(leaf), (torch.Tensor, torch.dtype, torch.device))


def _home(value: Any) -> Any:
    """A copy on the host of a tensor; anything else as it is."""
    return value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else value


def _array(tensor: torch.Tensor) -> Array:
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16 or (tensor.is_floating_point() and tensor.element_size() == 1):
        tensor = tensor.float()
    array: Array = tensor.numpy()
    return array if array.dtype != np.float16 else array.astype(np.float32)


def _results(function: Any, args: Any, kwargs: Any, result: Any) -> Any:
    """What it returned, or, if that is nothing (``_foreach_mul_``), the arguments that it has written to."""
    if result is not None and not (isinstance(result, tuple) and not result):
        return result
    return list(written(describe_operator(function), args, kwargs))


def _is_view(function: Any) -> bool:
    """True if what it returns is memory of an argument that it does not write to."""
    return bool(function.is_view)


def _is_backward() -> bool:
    return private.graph_task() != -1


def _line_of_program() -> str:
    for frame in reversed(traceback.extract_stack(limit=60)):
        if "/msprobe/" not in frame.filename and "/torch/" not in frame.filename:
            return f"{frame.filename}:{frame.lineno} {frame.line or ''}".strip()
    return ""
