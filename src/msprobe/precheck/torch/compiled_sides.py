"""Both sides of a module that is checked beside its training: eager, and as the compiler makes it."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from msprobe.capture.torch import private_compiler
from msprobe.errors import InvalidInputError
from msprobe.messages import said
from msprobe.paths import make_folder, write_atomically
from msprobe.precheck.compile_report import CompiledRow, difference
from msprobe.precheck.overflow import raised_text
from msprobe.precheck.side.machine import with_own_code
from msprobe.precheck.torch import reference
from msprobe.precheck.torch.beside import RandomNumbersAndAutocast, bytes_of, copy_of, plain, put_state, structure_of
from msprobe.precheck.torch.inputs import Inputs, for_device
from msprobe.precheck.torch.machine import Outcome, run_call
from msprobe.precheck.torch.results import value_of

_PLAIN = (bool, int, float, str, complex, type(None))


@dataclass
class Pass:
    """One forward pass of a module: what it was given, and the surroundings in which it ran."""

    module: nn.Module
    number: int
    inputs: Inputs
    numbers_and_autocast: RandomNumbersAndAutocast
    #: Parameters, which are not copied, with their version: they may be freed or written until the gradient comes.
    parameters: list[tuple[torch.Tensor, int, int]] = field(default_factory=list)
    rows: list[CompiledRow] = field(default_factory=list)
    #: What the module gave in the training, and the numbers that it kept before.
    results: list[Any] = field(default_factory=list)
    state: list[dict[str, Any]] = field(default_factory=list)
    #: It ran in the backward pass, to have values again; and gradients are to come to its results.
    is_recomputed: bool = False
    waits: bool = False
    done: bool = False

    @property
    def changed(self) -> bool:
        """True where a parameter is not what it was in the forward pass."""
        return any(
            (parameter._version, bytes_of(parameter)) != (version, size) for parameter, version, size in self.parameters
        )


@dataclass
class Sides:
    """What a pass gave eager and compiled; ``double`` makes the same in double precision, None where it cannot."""

    eager: Outcome
    compiled: Outcome
    double: Callable[[], Outcome | None]

    @property
    def backward_problem(self) -> str:
        """Why the backward was not run on both; empty if it was, or was not to be."""
        return self.eager.backward_problem or self.compiled.backward_problem


class BothSides:
    """Runs passes of modules on both sides, and knows what it has compiled.

    ``backend``: of ``torch.compile``. ``threshold``: how far the eager side may be from what the training itself came
    to. ``cast_dtype``: the type in which both run. ``graphs``: where the graphs are written that are compiled.
    """

    def __init__(
        self, backend: str | Callable[..., Any], threshold: float, cast_dtype: torch.dtype | None, graphs: Path | None
    ) -> None:
        self._backend, self._threshold, self._cast, self._graphs = backend, threshold, cast_dtype, graphs
        self._copies: dict[int, nn.Module] = {}
        self._functions: dict[int, Callable[..., Any]] = {}
        self._compiled: dict[int, Callable[..., Any]] = {}
        #: True while one of them runs: what is called then is no pass of the training.
        self.is_running = False
        # How often compiled code has run, the module that is compiled, and graphs that were written for each.
        self._runs, self._compiling = 0, ""
        self._written: dict[str, int] = {}

    def run(self, module_pass: Pass, name: str, backward: bool) -> Sides:
        """Run a pass on both sides; ``name``: of its module.

        Raises InvalidInputError where they cannot be compared, CompiledError where the compiled side alone raises.
        """
        inputs = module_pass.inputs if self._cast is None else _cast(module_pass.inputs, self._cast)
        function = self.function(module_pass.module)
        given = own_objects(inputs, same_tensor)
        with self._beside(module_pass), _uncompiled(), _raising("eager-raised", InvalidInputError):
            eager = run_call(function, given, backward)
        if self._cast is None and (why := self._other_than_before(module_pass, eager)):
            raise InvalidInputError(why)
        ran, self._compiling = self._runs, name
        compiled_function = self._compiled_function(module_pass.module, function)
        given, random = own_objects(inputs, same_tensor), private_compiler.random_as_eager(self._backend)
        with self._beside(module_pass), random, _raising("compiled-raised", CompiledError):
            compiled = run_call(compiled_function, given, backward)
        if self._runs == ran:
            raise InvalidInputError(said("compiler-left-all"))
        if len(eager.outputs) != len(compiled.outputs):
            raise InvalidInputError(said("compiled-result-counts", len(compiled.outputs), len(eager.outputs)))

        @functools.cache
        def double() -> Outcome | None:
            wide = reference.promoted(inputs, "", True)
            wide.args, wide.kwargs = wide.map(lambda tensor, path: tensor.cpu())
            cpu = torch.device("cpu")
            wide.args, wide.kwargs = for_device(wide.args, cpu), for_device(wide.kwargs, cpu)
            try:
                wide = own_objects(wide, _wide)
                with self._beside(module_pass, autocast=False), _uncompiled():
                    return run_call(function, wide, backward)
            except Exception:
                return None  # a kernel that the CPU lacks

        return Sides(eager, compiled, double)

    def _other_than_before(self, module_pass: Pass, eager: Outcome) -> str:
        """Why what a pass gives once more is not what it gave in the training; empty if it is."""
        for place, (first, again) in enumerate(zip(module_pass.results, eager.outputs, strict=False)):
            if isinstance(first, torch.Tensor) and isinstance(again, torch.Tensor):
                pair = value_of(first).array, value_of(again).array
                if difference(("", "", place), pair, self._threshold, None, "").status != "PASS":
                    return said("eager-not-repeatable")
        return ""

    def function(self, module: nn.Module) -> Callable[..., Any]:
        """The module as a function of its tensors, by a copy of its structure that has none of anybody's hooks."""
        if id(module) not in self._copies:
            self._copies[id(module)] = structure_of(module)
            self._functions[id(module)] = _function_of(self._copies[id(module)])
            self._compiled.pop(id(module), None)
        for ours, theirs in zip(self._copies[id(module)].modules(), plain(module).modules(), strict=True):
            ours.training = theirs.training
        return self._functions[id(module)]

    def _compiled_function(self, module: nn.Module, function: Callable[..., Any]) -> Callable[..., Any]:
        if id(module) not in self._compiled:
            self._compiled[id(module)] = torch.compile(function, backend=self._compile)
        return self._compiled[id(module)]

    def _compile(self, graph: Any, inputs: Any) -> Callable[..., Any]:
        """The backend of ``torch.compile``: that which is asked for, but that runs of what it makes are counted."""
        if self._graphs is not None:
            stem = re.sub(r"[^\w.-]", "_", self._compiling)
            number = self._written[stem] = self._written.get(stem, -1) + 1
            text = graph.print_readable(print_output=False)
            write_atomically(make_folder(self._graphs) / f"{stem}_{number}.py.txt", text.encode())
        made = private_compiler.compile_backend(self._backend)(graph, inputs)

        def run(*args: Any) -> Any:
            self._runs += 1
            return made(*args)

        return run

    @contextlib.contextmanager
    def _beside(self, module_pass: Pass, autocast: bool = True) -> Iterator[None]:
        """Beside the training, in the surroundings of a pass, and without a trace in those that are."""
        self.is_running, before = True, self.is_running
        put_state(self._copies[id(module_pass.module)], module_pass.state)
        try:
            with module_pass.numbers_and_autocast.again(autocast):
                yield
        finally:
            self.is_running = before

    @contextlib.contextmanager
    def compiled_in_place(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """These modules themselves compiled, within this block."""
        replaced: list[tuple[nn.Module, Any]] = []
        try:
            for module in modules:
                inner = plain(module)
                replaced.append((inner, inner.__dict__.get("forward")))
                inner.forward = torch.compile(inner.forward, backend=self._compile)
            self._compiling = "step"
            with private_compiler.random_as_eager(self._backend):
                yield
        finally:
            for inner, forward in replaced:
                inner.__dict__.pop("forward", None)
                if forward is not None:
                    inner.forward = forward


class CompiledError(InvalidInputError):
    """The compiled side raised, and the eager one did not."""


def same_tensor(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.cpu()
    return tensor.double() if tensor.is_floating_point() else tensor


def own_objects(inputs: Inputs, change: Callable[[torch.Tensor], torch.Tensor]) -> Inputs:
    """The arguments with a copy in the place of each object that a module could write to; tensors are not copied.

    ``change``: what becomes of the tensors in these objects. Raises InvalidInputError for one that cannot be copied.
    """

    def own(value: Any) -> Any:
        if isinstance(value, (*_PLAIN, torch.Tensor, torch.Size, torch.dtype, torch.device, nn.Module, type)):
            return value
        if type(value) in (list, tuple):
            return type(value)(map(own, value))
        if type(value) is dict:
            return {name: own(item) for name, item in value.items()}
        return value if callable(value) and not getattr(value, "__dict__", None) else copy_of(value, change)

    kwargs = {name: own(value) for name, value in inputs.kwargs.items()}
    return Inputs([inputs.args[0], *map(own, inputs.args[1:])], kwargs, inputs.gradients, inputs.wanted)


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """Modules that are compiled within another one run as they are in this block, where torch can do so."""
    before = private_compiler.run_uncompiled()
    try:
        yield
    finally:
        if before is not None:
            private_compiler.run_as_before(before)


def _cast(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    def cast(tensor: torch.Tensor, path: str) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    args, kwargs = inputs.map(cast)
    gradients = None
    if inputs.gradients is not None:
        gradients = [
            cast(gradient, "") if isinstance(gradient, torch.Tensor) else gradient for gradient in inputs.gradients
        ]
    return Inputs(args, kwargs, gradients, inputs.wanted)


@contextlib.contextmanager
def _raising(name: str, kind: type[InvalidInputError]) -> Iterator[None]:
    """What is raised in this block becomes an error with the message of a name, which says who raised it."""
    try:
        yield
    except Exception as problem:
        raise kind(said(name, raised_text(problem))) from problem


def _function_of(module: nn.Module) -> Callable[..., Any]:
    def call(tensors: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(module, tensors, args, kwargs)

    return with_own_code(call)
