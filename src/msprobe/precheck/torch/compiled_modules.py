"""``PrecisionChecker``: modules inside a training, each pass once more as ``torch.compile`` makes it.

The training goes on eager and stays what it is, bit for bit: both sides of the comparison are run beside it, from
copies of the arguments that the module was given, with the same random numbers and the gradient that came back to its
results. So each module is judged by itself, and no difference reaches the next one.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from msprobe import log
from msprobe.capture.torch import private
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.paths import check_output_folder, make_folder, write_atomically
from msprobe.precheck.compile_report import CompileResult, Difference, Status, difference, result_of
from msprobe.precheck.torch import reference
from msprobe.precheck.torch.beside import (
    ModelState,
    Surroundings,
    bytes_of,
    copy_of,
    plain,
    put_state,
    state_of,
    structure_of,
    tensors_of,
)
from msprobe.precheck.torch.inputs import Inputs, for_device
from msprobe.precheck.torch.machine import Outcome, copy_with_strides, flat_outputs, run_call, with_own_code
from msprobe.precheck.torch.runner import text_of, value_of

_SAME = "the same for both sides"
_NO_GRADIENT = (
    "its backward was not compared: no gradient came to its results, as where there was none yet or they were written "
    "in place."
)
_PLAIN = (bool, int, float, str, complex, type(None))


@dataclass
class _Pass:
    """One forward pass of a module: what it was given, and the surroundings in which it ran."""

    module: nn.Module
    number: int
    inputs: Inputs
    surroundings: Surroundings
    #: Parameters, which are not copied, with their version: they may be freed or written until the gradient comes.
    parameters: list[tuple[torch.Tensor, int, int]] = field(default_factory=list)
    rows: list[Difference] = field(default_factory=list)
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
        return any((one._version, bytes_of(one)) != (version, size) for one, version, size in self.parameters)


@dataclass
class _Sides:
    """What a pass gave eager and compiled; ``double`` makes the same in double precision, None where it cannot."""

    eager: Outcome
    compiled: Outcome
    double: Callable[[], Outcome | None]


class PrecisionChecker:
    """Check modules of a training eager against compiled::

        checker = PrecisionChecker(backend="inductor")
        checker.wrap_by_policy(model, (Block,))
        checker.install(model)
        loss = model(batch)
        loss.backward()
        checker.report(checker.collect(loss), "compiled.csv")

    ``backend``: of ``torch.compile``, a name or a function. ``threshold``: largest difference that passes, and ten
    times as much relative to the eager tensor; what is beyond is judged against double precision. ``dump_graphs``: the
    graphs that are compiled are written into ``graph_dir``. ``cast_dtype``: a float type in which both sides run.
    ``capture_input``: inputs, and gradients of results, have rows as well. ``single_pass``: use ``install`` and
    ``collect``; else ``compare``, which runs the step a second time with the modules compiled.

    Modules whose parameters are freed between forward and backward (FSDP) are a SKIP. Raises InvalidInputError for
    arguments that are not allowed, all of them at once.
    """

    def __init__(
        self,
        backend: str | Callable[..., Any] = "aot_eager",
        threshold: float = 1e-4,
        dump_graphs: bool = False,
        graph_dir: str | os.PathLike[str] = "./graph_dump",
        cast_dtype: torch.dtype | None = None,
        capture_input: bool = True,
        single_pass: bool = True,
    ) -> None:
        _demand(backend, threshold, cast_dtype)
        self._backend, self._threshold, self._cast = backend, float(threshold), cast_dtype
        self._graphs = check_output_folder(graph_dir) if dump_graphs else None
        self._with_inputs, self._single = bool(capture_input), bool(single_pass)
        self._wrapped: dict[int, nn.Module] = {}
        self._ignored: set[int] = set()
        self._names: dict[int, str] = {}
        self._handles: list[Any] = []
        # All passes in their order, and those that have begun and not ended.
        self._passes: list[_Pass] = []
        self._open: list[_Pass] = []
        self._counts: dict[int, int] = {}
        self._copies: dict[int, nn.Module] = {}
        self._functions: dict[int, Callable[..., Any]] = {}
        self._compiled: dict[int, Callable[..., Any]] = {}
        self._notes: list[Difference] = []
        self._aside = False
        # How often compiled code has run, the module that is compiled, and graphs that were written for each.
        self._runs, self._compiling = 0, ""
        self._written: dict[str, int] = {}

    # Which modules.

    def wrap(self, module: nn.Module) -> nn.Module:
        """Check this module; gives it back, unchanged."""
        if not isinstance(module, nn.Module):
            raise InvalidInputError(f"wrap takes a module, found {module!r}.")
        if id(module) not in self._ignored:
            self._wrapped[id(module)] = module
        return module

    def wrap_by_policy(self, model: nn.Module, types: type | Sequence[type]) -> nn.Module:
        """Check all modules in ``model`` that are of one of these types."""
        for module in model.modules():
            if isinstance(module, _types(types)):
                self.wrap(module)
        return model

    def wrap_all_children(self, model: nn.Module, depth: int = 1) -> nn.Module:
        """Check the modules ``depth`` levels below ``model``, and above these those that have no children."""
        if not isinstance(depth, int) or depth < 1:
            raise InvalidInputError(f"depth must be a whole number from 1 on, found {depth!r}.")
        for child in model.children():
            if depth == 1 or not any(True for _ in child.children()):
                self.wrap(child)
            else:
                self.wrap_all_children(child, depth - 1)
        return model

    def ignore(self, module: nn.Module) -> nn.Module:
        """Do not check this module, whatever else is asked for."""
        self._ignored.add(id(module))
        self._wrapped.pop(id(module), None)
        return module

    def ignore_by_policy(self, model: nn.Module, types: type | Sequence[type]) -> nn.Module:
        """Check none of the modules in ``model`` that are of one of these types."""
        for module in model.modules():
            if isinstance(module, _types(types)):
                self.ignore(module)
        return model

    # The check.

    def install(self, model: nn.Module) -> None:
        """Watch the passes of the modules until ``collect``. ``model`` gives them their names."""
        if not self._single:
            raise InvalidInputError(
                "install is for single_pass=True; with single_pass=False call compare(run_step, model)."
            )
        self._install(model)

    def collect(self, loss: Any = None) -> CompileResult:
        """What was found since ``install``; nothing is watched any more. ``loss``: a tensor of one number, or one."""
        if not self._handles:
            raise InvalidInputError("nothing is watched: call install before the step, and collect once behind it.")
        return result_of(self._collected(), self._cast, self._threshold, _number(loss))

    def compare(self, run_step: Callable[..., Any], model: nn.Module) -> CompileResult:
        """Run a step as it is, with the modules watched, and once more with them compiled in their places.

        ``run_step`` is called without arguments, or with the model where it takes one, runs forward and backward and
        returns the loss. It should not step an optimizer. Parameters, buffers, gradients and random numbers are
        afterwards those of the first run.
        """
        if self._single:
            raise InvalidInputError("compare runs a step twice: make the checker with single_pass=False.")
        before = ModelState(model)
        self._install(model)
        try:
            eager = _number(_run(run_step, model))
        finally:
            rows = self._collected()
        after = ModelState(model)
        before.restore()
        compiled = math.nan
        try:
            with self._compiled_in_place():
                compiled = _number(_run(run_step, model))
        except Exception as problem:
            why = f"the step with these modules compiled raised {text_of(problem)}"
            rows.append(Difference("LOSS", "note", 0, "FAIL", note=why))
        finally:
            after.restore()
        return result_of(rows, self._cast, self._threshold, eager, compiled)

    def report(self, result: CompileResult, csv_path: str | os.PathLike[str] | None = None) -> None:
        """Print what was found, and write it as a csv file where a path is given. Raises PathError."""
        for line in result.lines():
            print(line)
        if csv_path is not None:
            make_folder(Path(csv_path).absolute().parent)
            write_atomically(csv_path, result.csv())
            print(f"  {csv_path}")

    def _install(self, model: nn.Module) -> None:
        if self._handles:
            raise InvalidInputError("the checker is installed already; call collect first.")
        if not self._wrapped:
            raise InvalidInputError("no module is to be checked: call wrap, wrap_by_policy or wrap_all_children first.")
        self._names = {id(module): name or type(model).__name__ for name, module in model.named_modules()}
        self._passes, self._notes, self._counts = [], [], {}
        for module in self._wrapped.values():
            self._handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after, with_kwargs=True))

    def _collected(self) -> list[Difference]:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._open.clear()
        for one in self._passes:
            if not one.done:
                self._check(one, None)
                if one.waits and not one.is_recomputed:
                    self._note(one.module, one.number, _NO_GRADIENT)
        for key, module in self._wrapped.items():
            if key not in self._counts:
                self._note(module, 0, "the module was not called.")
        rows = [row for one in self._passes for row in one.rows] + self._notes
        self._passes, self._notes = [], []
        return rows

    def _name(self, module: nn.Module) -> str:
        return self._names.get(id(module), type(module).__name__)

    def _note(self, module: nn.Module, number: int, why: str, status: Status = "SKIP") -> None:
        self._notes.append(Difference(self._name(module), "note", 0, status, note=_of_pass(number, why)))

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._aside:
            return
        try:
            self._open.append(self._seen(module, args, kwargs))
        except Exception as problem:
            self._fail(module, problem)

    def _after(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if self._aside:
            return
        try:
            places = [place for place, one in enumerate(self._open) if one.module is module]
            if places:
                one = self._open[places[-1]]
                del self._open[places[-1] :]
                self._passes.append(one)
                self._await(one, output)
        except Exception as problem:
            self._fail(module, problem)

    def _fail(self, module: nn.Module, problem: Exception) -> None:
        why = problem.message if isinstance(problem, MsprobeError) else text_of(problem)
        self._note(module, self._counts.get(id(module), 1) - 1, why)

    def _seen(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Pass:
        number = self._counts[id(module)] = self._counts.get(id(module), 0) + 1
        inputs = Inputs([dict(tensors_of(module)), *args], dict(kwargs))
        parameters: list[tuple[torch.Tensor, int, int]] = []

        def see(tensor: torch.Tensor, path: str) -> torch.Tensor:
            if tensor.requires_grad and (tensor.is_floating_point() or tensor.is_complex()):
                inputs.wanted.append(path)
            if isinstance(tensor, nn.Parameter):
                parameters.append((tensor, tensor._version, bytes_of(tensor)))
                return tensor
            return copy_with_strides(tensor.detach())

        inputs.args, inputs.kwargs = inputs.map(see)
        inputs = _own_objects(inputs, _same)
        self._function(module)  # made before the pass, it is as the module was then
        recomputed, state = private.in_backward(), state_of(module)
        return _Pass(
            module, number - 1, inputs, Surroundings(inputs), parameters, state=state, is_recomputed=recomputed
        )

    def _await(self, one: _Pass, output: Any) -> None:
        """Run both sides when the gradients of the results have come, at once where there will be none."""
        results = flat_outputs(output)
        one.results = [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in results]
        places = [
            place for place, value in enumerate(results) if isinstance(value, torch.Tensor) and value.requires_grad
        ]
        if not places or not one.inputs.wanted or not torch.is_grad_enabled():
            self._check(one, None)
            return
        one.waits = True

        def come(gradients: Sequence[torch.Tensor | None]) -> None:
            if one.done or not any(value is not None for value in gradients):
                return
            given: list[Any] = [None] * len(results)
            for place, value in zip(places, gradients, strict=True):
                given[place] = None if value is None else value.detach().clone()
            self._check(one, given)

        torch.autograd.graph.register_multi_grad_hook([results[place] for place in places], come)

    def _check(self, one: _Pass, gradients: list[Any] | None) -> None:
        one.done = True
        try:
            if one.changed and one.is_recomputed:
                return  # no gradient comes to it: that of the first pass was the one
            if one.changed:
                why = "its parameters were changed or freed before its gradient came, by an optimizer or FSDP."
                self._note(one.module, one.number, why)
                return
            one.inputs.gradients = gradients
            rows = self._judged(one, self._run(one, gradients is not None))
            one.rows = [replace(row, note=_of_pass(one.number, row.note)) for row in rows]
        except _CompiledError as problem:
            self._note(one.module, one.number, problem.message, "FAIL")
        except MsprobeError as problem:
            self._note(one.module, one.number, problem.message)
        except Exception as problem:
            self._note(one.module, one.number, text_of(problem))
        finally:
            one.inputs, one.parameters, one.results = Inputs([], {}), [], []

    def _run(self, one: _Pass, backward: bool) -> _Sides:
        """Run a pass on both sides. Raises InvalidInputError where they cannot be compared."""
        inputs = one.inputs if self._cast is None else _cast(one.inputs, self._cast)
        function = self._function(one.module)
        with self._beside(one), _uncompiled(), _told("run once more, eager, it raised", InvalidInputError):
            eager = run_call(function, _own_objects(inputs, _same), backward)
        if self._cast is None and (why := self._other_than_before(one, eager)):
            raise InvalidInputError(why)
        ran, self._compiling = self._runs, self._name(one.module)
        compiled_function = self._compiled_function(one.module, function)
        random = private.random_as_eager(self._backend)
        with self._beside(one), random, _told("compiled it raised", _CompiledError):
            compiled = run_call(compiled_function, _own_objects(inputs, _same), backward)
        if self._runs == ran:
            raise InvalidInputError("the compiler left all of it as it is.")
        if backward and (problem := eager.backward_problem or compiled.backward_problem):
            self._note(one.module, one.number, f"its backward was not compared: {problem}")
        if len(eager.outputs) != len(compiled.outputs):
            raise InvalidInputError(f"compiled it gives {len(compiled.outputs)} results, eager {len(eager.outputs)}.")

        @functools.cache
        def double() -> Outcome | None:
            wide = reference.promoted(inputs, "", True)
            wide.args, wide.kwargs = wide.map(lambda tensor, path: tensor.cpu())
            cpu = torch.device("cpu")
            wide.args, wide.kwargs = for_device(wide.args, cpu), for_device(wide.kwargs, cpu)
            try:
                wide = _own_objects(wide, _wide)
                with self._beside(one, autocast=False), _uncompiled():
                    return run_call(function, wide, backward)
            except Exception:
                return None  # a kernel that the CPU lacks

        return _Sides(eager, compiled, double)

    def _other_than_before(self, one: _Pass, eager: Outcome) -> str:
        """Why what a pass gives once more is not what it gave in the training; empty if it is."""
        for place, (first, again) in enumerate(zip(one.results, eager.outputs, strict=False)):
            if isinstance(first, torch.Tensor) and isinstance(again, torch.Tensor):
                pair = value_of(first).array, value_of(again).array
                if difference(("", "", place), pair, self._threshold, None, "").status != "PASS":
                    return (
                        "run once more, eager, it gives other results than in the training: it keeps something between "
                        "passes, or draws from a generator, that cannot be put back."
                    )
        return ""

    def _judged(self, one: _Pass, sides: _Sides) -> list[Difference]:
        rows = []
        if self._with_inputs:
            given = Inputs(one.inputs.args[1:], one.inputs.kwargs).tensors()
            came = [value for value in one.inputs.gradients or [] if isinstance(value, torch.Tensor)]
            for kind, values in (("fwd_input", given), ("grad_output", came)):
                for place, value in enumerate(values):
                    shape = str(tuple(value.shape))
                    rows.append(Difference(self._name(one.module), kind, place, "PASS", shape=shape, note=_SAME))
        name = self._name(one.module)
        for place in range(len(sides.eager.outputs)):
            rows += self._row((name, "fwd_output", place), sides, functools.partial(_output, place))
        paths = [path for path in one.inputs.paths() if path in sides.eager.gradients]
        for kind, is_parameter in (("grad_input", False), ("grad_param", True)):
            for place, path in enumerate(one for one in paths if one.startswith("0.") == is_parameter):
                rows += self._row((name, kind, place), sides, functools.partial(_gradient, path))
        return rows

    def _row(self, name: tuple[str, str, int], sides: _Sides, of: Callable[[Outcome], Any]) -> list[Difference]:
        """``of``: the result, or the gradient, that is meant."""
        eager, compiled = of(sides.eager), of(sides.compiled)
        if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
            given = [value for value in (eager, compiled) if isinstance(value, torch.Tensor)]
            if given and (eager is None or compiled is None) and not bool(given[0].any()):
                return []  # no gradient, and one of zeros
            plain = not given
            if plain and not (isinstance(eager, _PLAIN) and isinstance(compiled, _PLAIN) and eager != compiled):
                return []
            return [Difference(*name, "FAIL", note=f"compiled it is {_kind(compiled)}, eager {_kind(eager)}.")]
        pair = value_of(eager).array, value_of(compiled).array
        dtype = str(eager.dtype).rpartition(".")[2]
        row = difference(name, pair, self._threshold, None, dtype)
        if row.status == "FAIL" and eager.is_floating_point() and (outcome := sides.double()) is not None:
            wide = of(outcome)
            if isinstance(wide, torch.Tensor):
                row = difference(name, pair, self._threshold, value_of(wide).array, dtype)
        return [row]

    def _function(self, module: nn.Module) -> Callable[..., Any]:
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
        made = private.compile_backend(self._backend)(graph, inputs)

        def run(*args: Any) -> Any:
            self._runs += 1
            return made(*args)

        return run

    @contextlib.contextmanager
    def _beside(self, one: _Pass, autocast: bool = True) -> Iterator[None]:
        """Beside the training, in the surroundings of a pass, and without a trace in those that are."""
        self._aside, before = True, self._aside
        put_state(self._copies[id(one.module)], one.state)
        try:
            with one.surroundings.again(autocast):
                yield
        finally:
            self._aside = before

    @contextlib.contextmanager
    def _compiled_in_place(self) -> Iterator[None]:
        """The modules themselves compiled, within this block."""
        replaced: list[tuple[nn.Module, Any]] = []
        try:
            for module in self._wrapped.values():
                inner = plain(module)
                replaced.append((inner, inner.__dict__.get("forward")))
                inner.forward = torch.compile(inner.forward, backend=self._compile)
            self._compiling = "step"
            with private.random_as_eager(self._backend):
                yield
        finally:
            for inner, forward in replaced:
                inner.__dict__.pop("forward", None)
                if forward is not None:
                    inner.forward = forward


class _CompiledError(InvalidInputError):
    """The compiled side raised, and the eager one did not."""


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.cpu()
    return tensor.double() if tensor.is_floating_point() else tensor


def _own_objects(inputs: Inputs, change: Callable[[torch.Tensor], torch.Tensor]) -> Inputs:
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
    before = private.run_uncompiled()
    try:
        yield
    finally:
        if before is not None:
            private.run_as_before(before)


def _output(place: int, side: Outcome) -> Any:
    return side.outputs[place]


def _gradient(path: str, side: Outcome) -> Any:
    return side.gradients.get(path)


def _demand(backend: Any, threshold: Any, cast_dtype: Any) -> None:
    """Raises InvalidInputError with all that is wrong."""
    mistakes = []
    known = torch.compiler.list_backends(exclude_tags=())
    if not callable(backend) and backend not in known:
        mistakes.append(f"backend {backend!r} is none of {', '.join(sorted(known))}, and no function")
    is_number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not is_number or not 0 < threshold < math.inf:
        mistakes.append(f"threshold must be a number above 0, found {threshold!r}")
    if cast_dtype is not None and not (isinstance(cast_dtype, torch.dtype) and cast_dtype.is_floating_point):
        mistakes.append(f"cast_dtype must be a float type of torch or None, found {cast_dtype!r}")
    if mistakes:
        raise InvalidInputError(f"PrecisionChecker: {'; '.join(mistakes)}.")


def _types(types: type | Sequence[type]) -> tuple[type, ...]:
    found = (types,) if isinstance(types, type) else tuple(types)
    if not found or not all(isinstance(one, type) for one in found):
        raise InvalidInputError(f"types must be classes of modules, found {types!r}.")
    return found


def _cast(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    def cast(tensor: torch.Tensor, path: str) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    args, kwargs = inputs.map(cast)
    gradients = None
    if inputs.gradients is not None:
        gradients = [cast(one, "") if isinstance(one, torch.Tensor) else one for one in inputs.gradients]
    return Inputs(args, kwargs, gradients, inputs.wanted)


def _run(run_step: Callable[..., Any], model: nn.Module) -> Any:
    try:
        takes = any(
            one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and one.default is one.empty
            for one in inspect.signature(run_step).parameters.values()
        )
    except (TypeError, ValueError):
        takes = False
    return run_step(model) if takes else run_step()


def _number(loss: Any) -> float:
    if loss is None:
        return math.nan
    try:
        return float(loss.detach()) if isinstance(loss, torch.Tensor) else float(loss)
    except (TypeError, ValueError, RuntimeError):
        log.warning(f"the loss is no single number but {type(loss).__name__}; it is left out.")
        return math.nan


def _of_pass(number: int, text: str) -> str:
    """A note with the number of the pass, but for the first."""
    return ": ".join(part for part in (f"pass {number + 1}" if number else "", text) if part)


@contextlib.contextmanager
def _told(who: str, kind: type[InvalidInputError]) -> Iterator[None]:
    """What is raised in this block is told with who raised it."""
    try:
        yield
    except Exception as problem:
        raise kind(f"{who} {text_of(problem)}") from problem


def _function_of(module: nn.Module) -> Callable[..., Any]:
    def call(tensors: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(module, tensors, args, kwargs)

    return with_own_code(call)


def _kind(value: Any) -> str:
    return "a tensor" if isinstance(value, torch.Tensor) else repr(value)[:80]
