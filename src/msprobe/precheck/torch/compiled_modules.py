"""``PrecisionChecker``: modules inside a training, each pass once more as ``torch.compile`` makes it.

The training goes on eager and stays what it is, bit for bit: both sides of the comparison are run beside it, from
copies of the arguments that the module was given, with the same random numbers and the gradient that came back to its
results. So each module is judged by itself, and no difference reaches the next one.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from msprobe import log
from msprobe.capture.torch import private
from msprobe.capture.torch.modules.module_calls import WatchedModule, watch_module
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.foreign.console import say
from msprobe.foreign.plain_numbers import is_number
from msprobe.messages import joined, said
from msprobe.paths import check_output_folder, make_folder, write_atomically
from msprobe.precheck.compile_report import CompiledRow, CompiledStatus, CompileResult, difference, result_of
from msprobe.precheck.overflow import raised_text
from msprobe.precheck.side.trees import leaves_of
from msprobe.precheck.torch.beside import ModelState, RandomNumbersAndAutocast, bytes_of, state_of, tensors_of
from msprobe.precheck.torch.compiled_sides import BothSides, CompiledError, Pass, Sides, own_objects, same_tensor
from msprobe.precheck.torch.inputs import Inputs
from msprobe.precheck.torch.machine import Outcome, copy_with_strides
from msprobe.precheck.torch.results import value_of

_PLAIN = (bool, int, float, str, complex, type(None))


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
        self._threshold, self._cast = float(threshold), cast_dtype
        graphs = check_output_folder(graph_dir) if dump_graphs else None
        self._sides = BothSides(backend, self._threshold, cast_dtype, graphs)
        self._with_inputs, self._single = bool(capture_input), bool(single_pass)
        self._wrapped: dict[int, nn.Module] = {}
        self._ignored: set[int] = set()
        self._names: dict[int, str] = {}
        self._watched: list[WatchedModule] = []
        # All passes in their order, and those that have begun and not ended.
        self._passes: list[Pass] = []
        self._open: list[Pass] = []
        self._counts: dict[int, int] = {}
        self._notes: list[CompiledRow] = []

    # Which modules.

    def wrap(self, module: nn.Module) -> nn.Module:
        """Check this module; gives it back, unchanged."""
        if not isinstance(module, nn.Module):
            raise InvalidInputError(said("wrap-wants-module", module))
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
            raise InvalidInputError(said("depth-wrong", depth))
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
            raise InvalidInputError(said("install-is-for-single-pass"))
        self._install(model)

    def collect(self, loss: Any = None) -> CompileResult:
        """What was found since ``install``; nothing is watched any more. ``loss``: a tensor of one number, or one."""
        if not self._watched:
            raise InvalidInputError(said("nothing-installed"))
        return result_of(self._collected(), self._cast, self._threshold, _number(loss))

    def compare(self, run_step: Callable[..., Any], model: nn.Module) -> CompileResult:
        """Run a step as it is, with the modules watched, and once more with them compiled in their places.

        ``run_step`` is called without arguments, or with the model where it takes one, runs forward and backward and
        returns the loss. It should not step an optimizer. Parameters, buffers, gradients and random numbers are
        afterwards those of the first run.
        """
        if self._single:
            raise InvalidInputError(said("compare-runs-twice"))
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
            with self._sides.compiled_in_place(self._wrapped.values()):
                compiled = _number(_run(run_step, model))
        except Exception as problem:
            why = said("compiled-step-raised", raised_text(problem))
            rows.append(CompiledRow("LOSS", "note", 0, "FAIL", note=why))
        finally:
            after.restore()
        return result_of(rows, self._cast, self._threshold, eager, compiled)

    def report(self, result: CompileResult, csv_path: str | os.PathLike[str] | None = None) -> None:
        """Print what was found, and write it as a csv file where a path is given. Raises PathError."""
        for line in result.lines():
            say(line)
        if csv_path is not None:
            make_folder(Path(csv_path).absolute().parent)
            write_atomically(csv_path, result.csv())
            say(f"  {csv_path}")

    def _install(self, model: nn.Module) -> None:
        if self._watched:
            raise InvalidInputError(said("installed-already"))
        if not self._wrapped:
            raise InvalidInputError(said("no-module-wrapped"))
        self._names = {id(module): name or type(model).__name__ for name, module in model.named_modules()}
        self._passes, self._notes, self._counts = [], [], {}
        self._watched = [watch_module(module, self) for module in self._wrapped.values()]

    def _collected(self) -> list[CompiledRow]:
        watched, self._watched = self._watched, []
        for handle in watched:
            handle.remove()
        self._open.clear()
        for pass_ in self._passes:
            if not pass_.done:
                self._check(pass_, None)
                if pass_.waits and not pass_.is_recomputed:
                    self._note(pass_.module, pass_.number, said("no-gradient-to-results"))
        for key, module in self._wrapped.items():
            if key not in self._counts:
                self._note(module, 0, said("module-not-called"))
        rows = [row for pass_ in self._passes for row in pass_.rows] + self._notes
        self._passes, self._notes = [], []
        return rows

    def _name(self, module: nn.Module) -> str:
        return self._names.get(id(module), type(module).__name__)

    def _note(self, module: nn.Module, number: int, why: str, status: CompiledStatus = "SKIP") -> None:
        self._notes.append(CompiledRow(self._name(module), "note", 0, status, note=_note_of_pass(number, why)))

    def enter(self, module: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """A module that is checked is about to run."""
        if self._sides.is_running:
            return
        try:
            self._open.append(self._seen(module, tuple(args), kwargs))
        except Exception as problem:
            self._fail(module, problem)

    def leave(self, module: nn.Module, output: Any, error: BaseException | None) -> None:
        """It has run, or raised ``error``."""
        if self._sides.is_running or error is not None:
            return
        try:
            places = [place for place, pass_ in enumerate(self._open) if pass_.module is module]
            if places:
                running = self._open[places[-1]]
                del self._open[places[-1] :]
                self._passes.append(running)
                self._await(running, output)
        except Exception as problem:
            self._fail(module, problem)

    def _fail(self, module: nn.Module, problem: Exception) -> None:
        why = problem.message if isinstance(problem, MsprobeError) else raised_text(problem)
        self._note(module, self._counts.get(id(module), 1) - 1, why)

    def _seen(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pass:
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
        inputs = own_objects(inputs, same_tensor)
        self._sides.function(module)  # made before the pass, it is as the module was then
        recomputed, state = private.in_backward(), state_of(module)
        return Pass(
            module,
            number - 1,
            inputs,
            RandomNumbersAndAutocast(inputs),
            parameters,
            state=state,
            is_recomputed=recomputed,
        )

    def _await(self, running: Pass, output: Any) -> None:
        """Run both sides when the gradients of the results have come, at once where there will be none."""
        results = leaves_of(output)
        running.results = [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in results]
        places = [
            place for place, value in enumerate(results) if isinstance(value, torch.Tensor) and value.requires_grad
        ]
        if not places or not running.inputs.wanted or not torch.is_grad_enabled():
            self._check(running, None)
            return
        running.waits = True

        def come(gradients: Sequence[torch.Tensor | None]) -> None:
            if running.done or not any(value is not None for value in gradients):
                return
            given: list[Any] = [None] * len(results)
            for place, value in zip(places, gradients, strict=True):
                given[place] = None if value is None else value.detach().clone()
            self._check(running, given)

        torch.autograd.graph.register_multi_grad_hook([results[place] for place in places], come)

    def _check(self, running: Pass, gradients: list[Any] | None) -> None:
        running.done = True
        try:
            if running.changed and running.is_recomputed:
                return  # no gradient comes to it: that of the first pass was the one
            if running.changed:
                why = said("parameters-changed-before-gradient")
                self._note(running.module, running.number, why)
                return
            running.inputs.gradients = gradients
            sides = self._sides.run(running, self._name(running.module), gradients is not None)
            if sides.backward_problem:
                self._note(running.module, running.number, said("backward-not-compared", sides.backward_problem))
            rows = self._judged(running, sides)
            running.rows = [replace(row, note=_note_of_pass(running.number, row.note)) for row in rows]
        except CompiledError as problem:
            self._note(running.module, running.number, problem.message, "FAIL")
        except MsprobeError as problem:
            self._note(running.module, running.number, problem.message)
        except Exception as problem:
            self._note(running.module, running.number, raised_text(problem))
        finally:
            running.inputs, running.parameters, running.results = Inputs([], {}), [], []

    def _judged(self, running: Pass, sides: Sides) -> list[CompiledRow]:
        rows = []
        if self._with_inputs:
            given = Inputs(running.inputs.args[1:], running.inputs.kwargs).tensors()
            came = [value for value in running.inputs.gradients or [] if isinstance(value, torch.Tensor)]
            for kind, values in (("fwd_input", given), ("grad_output", came)):
                for place, value in enumerate(values):
                    shape = str(tuple(value.shape))
                    rows.append(
                        CompiledRow(
                            self._name(running.module), kind, place, "PASS", shape=shape, note=said("inputs-are-shared")
                        )
                    )
        name = self._name(running.module)
        for place in range(len(sides.eager.outputs)):
            rows += self._row((name, "fwd_output", place), sides, functools.partial(_output, place))
        paths = [path for path in running.inputs.paths() if path in sides.eager.gradients]
        for kind, is_parameter in (("grad_input", False), ("grad_param", True)):
            for place, path in enumerate(path for path in paths if path.startswith("0.") == is_parameter):
                rows += self._row((name, kind, place), sides, functools.partial(_gradient, path))
        return rows

    def _row(self, name: tuple[str, str, int], sides: Sides, of: Callable[[Outcome], Any]) -> list[CompiledRow]:
        """``of``: the result, or the gradient, that is meant."""
        eager, compiled = of(sides.eager), of(sides.compiled)
        if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
            given = [value for value in (eager, compiled) if isinstance(value, torch.Tensor)]
            if given and (eager is None or compiled is None) and not bool(given[0].any()):
                return []  # no gradient, and one of zeros
            plain = not given
            if plain and not (isinstance(eager, _PLAIN) and isinstance(compiled, _PLAIN) and eager != compiled):
                return []
            return [CompiledRow(*name, "FAIL", note=said("compiled-kinds-differ", _kind(compiled), _kind(eager)))]
        pair = value_of(eager).array, value_of(compiled).array
        dtype = str(eager.dtype).rpartition(".")[2]
        row = difference(name, pair, self._threshold, None, dtype)
        if row.status == "FAIL" and eager.is_floating_point() and (outcome := sides.double()) is not None:
            wide = of(outcome)
            if isinstance(wide, torch.Tensor):
                row = difference(name, pair, self._threshold, value_of(wide).array, dtype)
        return [row]


def _output(place: int, side: Outcome) -> Any:
    return side.outputs[place]


def _gradient(path: str, side: Outcome) -> Any:
    return side.gradients.get(path)


def _demand(backend: Any, threshold: Any, cast_dtype: Any) -> None:
    """Raises InvalidInputError with all that is wrong."""
    mistakes = []
    known = torch.compiler.list_backends(exclude_tags=())
    if not callable(backend) and backend not in known:
        mistakes.append(said("backend-unknown", backend, ", ".join(sorted(known))))
    if not is_number(threshold) or not 0 < threshold < math.inf:
        mistakes.append(said("threshold-wrong", threshold))
    if cast_dtype is not None and not (isinstance(cast_dtype, torch.dtype) and cast_dtype.is_floating_point):
        mistakes.append(said("cast-dtype-wrong", cast_dtype))
    if mistakes:
        raise InvalidInputError(said("precision-checker-wrong", joined("; ", mistakes)))


def _types(types: type | Sequence[type]) -> tuple[type, ...]:
    classes = (types,) if isinstance(types, type) else tuple(types)
    if not classes or not all(isinstance(kind, type) for kind in classes):
        raise InvalidInputError(said("types-are-no-modules", types))
    return classes


def _run(run_step: Callable[..., Any], model: nn.Module) -> Any:
    try:
        takes = any(
            parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            and parameter.default is parameter.empty
            for parameter in inspect.signature(run_step).parameters.values()
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
        log.warning(said("loss-is-no-number", type(loss).__name__))
        return math.nan


def _note_of_pass(number: int, text: str) -> str:
    """A note with the number of the pass, but for the first."""
    return said("pass-number-note", number + 1, text) if number and text else text


def _kind(value: Any) -> str:
    return said("a-tensor") if isinstance(value, torch.Tensor) else repr(value)[:80]
