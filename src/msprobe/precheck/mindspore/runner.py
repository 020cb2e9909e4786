"""Checks calls of a MindSpore dump: in their recorded types, and in double precision, both by MindSpore.

No torch is needed. With recorded values (task tensor) what is judged is the recorded result: the call itself is run in
double precision only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore
import numpy as np
from mindspore import mint

from msprobe.errors import MsprobeError
from msprobe.foreign.known_words import word_of
from msprobe.messages import said, text_of
from msprobe.precheck.arguments import Argument, ArgumentTensor, Items, Mapping, Plain, UnreadableArgumentError
from msprobe.precheck.columns import direction_status
from msprobe.precheck.domains import domain_of
from msprobe.precheck.executors import executor_of
from msprobe.precheck.generate import CannotGenerateError, generator_for, values_for
from msprobe.precheck.job import Answer, Task
from msprobe.precheck.memory import check_memory
from msprobe.precheck.mindspore.standalone import DTYPES, api_of, leaves, plain
from msprobe.precheck.mindspore_rows import MindSporeRow, judge, skipped, spoiled
from msprobe.precheck.requests import ApiCall, flat, open_requests
from msprobe.store.values import read_values

_SPACES: dict[str, Any] = {"Mint": mint, "MintFunctional": mint.nn.functional, "Tensor": mindspore.Tensor}
_HALVES = ("float16", "bfloat16")


class CallError(ValueError):
    """A call cannot be made again."""


def runner(task: Task) -> MindSporeRunner:
    """What a worker asks for."""
    return MindSporeRunner(task)


class MindSporeRunner:
    """Runs the calls of one dump on the CPU."""

    def __init__(self, task: Task) -> None:
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
        self._task = task
        self._fault = executor_of(task.candidate).fault
        self.requests = open_requests(task.dump)

    def run(self, key: str) -> Answer:
        """Check one call of the dump."""
        has_backward = self.requests.has_backward(key)
        try:
            return self._check(self.requests.call(key))
        except MsprobeError as problem:
            return skipped(key, problem.message, has_backward)
        except (UnreadableArgumentError, CannotGenerateError, CallError) as problem:
            return skipped(key, text_of(problem), has_backward)
        except Exception as problem:
            text = " ".join(str(problem).split())[:300]
            return skipped(key, f"{type(problem).__name__}: {text}", has_backward)

    def outputs(self, call: ApiCall) -> Any:
        """What a call gives in its recorded types. Raises CallError, and what the call raises."""
        return _run(_function_of(call), self._inputs(call, wide=False))

    def _check(self, call: ApiCall) -> Answer:
        function = _function_of(call)
        check_memory(call)
        tested = self._inputs(call, wide=False)
        bench = self._inputs(call, wide=True)
        outputs = leaves(_run(function, bench))
        recorded = self._recorded(call)
        if recorded is None:
            recorded = [plain(value) for value in leaves(_run(function, tested))]
        name = f"{call.key}.forward.output"
        rows = [
            judge(f"{name}.{place}", plain(ours), spoiled(theirs, self._fault), self._task.ms_atol)
            for place, (ours, theirs) in enumerate(zip(outputs, recorded, strict=False))
        ]
        if len(outputs) != len(recorded):
            counts = said("recorded-counts-differ", len(recorded), len(outputs))
            rows.append(MindSporeRow(f"{name}.{len(rows)}", "error", counts))
        forward, backward, message = direction_status(rows, "Warning"), "", ""
        if call.gradients is not None:
            try:
                gradients = self._backward(call, function, tested, bench)
                backward = direction_status(gradients, "Warning")
            except Exception as problem:
                message = " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
                gradients = [MindSporeRow(f"{call.key}.backward.output.0", "SKIP", message)]
                backward = "SKIP"
            rows += gradients
        message = message or next((row.message for row in rows if row.status == "error"), "")
        return Answer(call.key, [call.key, forward, backward, message], [row.cells() for row in rows])

    def _backward(self, call: ApiCall, function: Callable[..., Any], tested: Any, bench: Any) -> list[MindSporeRow]:
        sides = []
        for inputs, wide in ((bench, True), (tested, False)):
            given = [
                self._made(gradient, f"gradient.{n}", call, wide) for n, gradient in enumerate(call.gradients or ())
            ]
            sides.append([plain(value) for value in _gradients(function, inputs, given)])
        return [
            judge(f"{call.key}.backward.output.{place}", ours, spoiled(theirs, self._fault), self._task.ms_atol)
            for place, (ours, theirs) in enumerate(zip(*sides, strict=True))
        ]

    def _inputs(self, call: ApiCall, wide: bool) -> tuple[list[Any], dict[str, Any]]:
        args = [self._made(argument, str(place), call, wide) for place, argument in enumerate(call.args)]
        return args, {name: self._made(argument, name, call, wide) for name, argument in call.kwargs.items()}

    def _made(self, argument: Argument, path: str, call: ApiCall, wide: bool) -> Any:
        if isinstance(argument, ArgumentTensor):
            return self._tensor(argument, path, call, wide)
        if isinstance(argument, Items):
            return tuple(self._made(item, f"{path}.{place}", call, wide) for place, item in enumerate(argument.items))
        if isinstance(argument, Mapping):
            return {name: self._made(item, f"{path}.{name}", call, wide) for name, item in argument.items.items()}
        return _plain(argument, path)

    def _tensor(self, info: ArgumentTensor, path: str, call: ApiCall, wide: bool) -> Any:
        if info.file is not None and self.requests.has_values:
            array = np.array(read_values(self.requests.part.tensor_path(info.file)).array)
        else:
            array = np.asarray(
                values_for(info, generator_for(call.key, path, self._task.seed), domain_of(call, path, info))
            )
        kind = DTYPES.get(info.dtype)
        if kind is None:
            raise CallError(said("mindspore-type-unknown", path, info.dtype))
        if info.dtype.startswith(("float", "bfloat")):
            # Halves of both sides are the same numbers: they are rounded before they are widened.
            tensor = mindspore.Tensor(array.astype(np.float32 if info.dtype != "float64" else np.float64)).astype(kind)
            return tensor.astype(mindspore.float32).astype(mindspore.float64) if wide else tensor
        return mindspore.Tensor(array).astype(kind)

    def _recorded(self, call: ApiCall) -> list[Any] | None:
        """The recorded results; None where they were not."""
        infos = list(flat(call.outputs))
        if not self.requests.has_values or not all(isinstance(info, ArgumentTensor) and info.file for info in infos):
            return None
        return [
            (np.array(read_values(self.requests.part.tensor_path(info.file)).array), info.dtype)
            for info in infos
            if isinstance(info, ArgumentTensor) and info.file
        ]


def _function_of(call: ApiCall) -> Callable[..., Any]:
    try:
        return api_of(_SPACES.get(call.api.prefix), call.api.name)
    except LookupError:
        raise CallError(said("mindspore-api-unknown", mindspore.__version__, call.api.prefix, call.api.name)) from None


def _run(function: Callable[..., Any], inputs: tuple[list[Any], dict[str, Any]]) -> Any:
    args, kwargs = inputs
    return function(*args, **kwargs)


def _gradients(function: Callable[..., Any], inputs: tuple[list[Any], dict[str, Any]], given: list[Any]) -> list[Any]:
    """Gradients of the float tensors among the positional arguments."""
    args, kwargs = inputs
    places = [place for place, argument in enumerate(args) if _is_float(argument)]

    def call(*tensors: Any) -> Any:
        whole = list(args)
        for place, tensor in zip(places, tensors, strict=True):
            whole[place] = tensor
        return function(*whole, **kwargs)

    outputs, pull = mindspore.vjp(call, *(args[place] for place in places))
    sent = [gradient.astype(output.dtype) for gradient, output in zip(given, leaves(outputs), strict=False)]
    pulled = pull(*sent) if len(sent) > 1 else pull(sent[0])
    return leaves(pulled)


def _is_float(value: Any) -> bool:
    return isinstance(value, mindspore.Tensor) and str(value.dtype).startswith(("Float", "BFloat"))


def _plain(argument: Plain, path: str) -> Any:
    kind, value = argument.kind, argument.value
    if kind == "mindspore.dtype":
        dtype = DTYPES.get(word_of(kind, value))
        if dtype is not None:
            return dtype
    if kind == "slice":
        return slice(*value)
    if kind == "ellipsis":
        return ...
    if kind == "float":
        return float(value)
    if kind in ("NoneType", "int", "bool", "str"):
        return value
    raise CallError(said("argument-cannot-be-made", path, kind, value))
