"""Checks one call after the other: makes its arguments, runs it on all sides, and compares what they give."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from msprobe.errors import MsprobeError
from msprobe.messages import said, text_of
from msprobe.precheck.arguments import ArgumentTensor, Plain, UnreadableArgumentError
from msprobe.precheck.columns import BLANK, JudgedResult, direction_status, worst_of
from msprobe.precheck.executors import RECORDED, executor_of, is_details_file
from msprobe.precheck.job import Answer, Task, skipped
from msprobe.precheck.judge import ResultPair, Value, judge
from msprobe.precheck.known_names import RANDOM, is_dropout
from msprobe.precheck.memory import check_memory
from msprobe.precheck.overflow import raised_text
from msprobe.precheck.precision_compare import FORMULA
from msprobe.precheck.requests import ApiCall, Requests, digest_of, flat, open_requests
from msprobe.precheck.side.places import units_taken_over
from msprobe.precheck.side.trees import leaves_of
from msprobe.precheck.standards import PROFILES, Profile
from msprobe.precheck.torch import errors_kept, reference, spread
from msprobe.precheck.torch.draws import Draws, seed_draws
from msprobe.precheck.torch.functions import UnknownApiError, find_function, find_loaded, function_of_npu
from msprobe.precheck.torch.given import Given, given_to
from msprobe.precheck.torch.inputs import InputError, InputMaker, Inputs
from msprobe.precheck.torch.machine import Machine, Outcome, cpu, run_call
from msprobe.precheck.torch.random_calls import random_call
from msprobe.precheck.torch.recorded import (
    RecordedOutcome,
    RecordedResults,
    autocast_of_record,
    other_shapes,
    place_gradients,
    unknown_gradients,
)
from msprobe.precheck.torch.results import (
    is_float8,
    ordinary_beside,
    rounded_to,
    same_bits,
    sizes_of,
    value_of,
    widen,
)
from msprobe.precheck.torch.user_code import cleaned, load_function, load_kernels, load_operator

#: Results whose gradient is compared by 8.1.1, of calls with several.
_ONE_GRADIENT = {"topk": 0, "npu_fusion_attention": 0}
#: Vectors that these give may point the other way: sizes are compared.
_UP_TO_SIGN = frozenset("eigh linalg_eigh svd linalg_svd qr linalg_qr eig linalg_eig geqrf pca_lowrank".split())
#: Calls of kernels that are not torch's.
_OF_USERS = ("Ops.", "Function.")
_NO_BACKWARD = frozenset(("repeat_interleave", "masked_select"))


def runner(task: Task) -> TorchRunner:
    """What a worker asks for."""
    # Workers share the machine: one thread each, unless the executor says otherwise.
    torch.set_num_threads(1)
    if not task.dump:
        # Nothing is there yet that a dump's own results could be taken from; is the control?
        return TorchRunner(replace(task, candidate="cpu"), None)
    return TorchRunner(task, open_requests(task.dump, task.modules))


@dataclass
class Sides:
    """What the sides gave for one call."""

    inputs: Inputs
    bench: Outcome
    device: Outcome
    control: Outcome | None
    movement: reference.MeasuredMovement
    autocast: torch.dtype | None
    given: Given
    #: The candidate drew random numbers.
    drew: bool = False


class TorchRunner:
    """Runs the calls of one dump with one candidate, and with a control where one is asked for."""

    def __init__(self, task: Task, requests: Requests | None) -> None:
        self._task = task
        self._requests = requests
        self._profile: Profile = PROFILES[task.standard]
        self._maker = InputMaker(requests, task.seed) if requests is not None else None
        executor = executor_of(task.candidate)
        self._recorded = RecordedResults(executor, requests, self._maker) if task.candidate == RECORDED else None
        self._candidate = self._recorded or Machine(executor)
        runs = task.control and not is_details_file(task.control)
        self._control = Machine(executor_of(task.control, "--control")) if runs else None
        self._cpu = cpu()
        # Of the call that is checked; of a sample there is no record.
        self._arguments = ""
        self._cleaning = load_function(task.cleaning, "--clean-output") if task.cleaning else None
        self._module = load_kernels(task.load)
        self._operators = {name: load_operator(*texts) for name, *texts in task.operators}
        if task.jit_compile and self._candidate.device.type == "npu":
            torch.npu.set_compile_mode(jit_compile=True)  # type: ignore[attr-defined]
        self.further = (
            task.seed,
            self._candidate.name,
            self._control.name if self._control else task.control_name,
            task.judged_by,
        )

    def run(self, key: str) -> Answer:
        """Check one call of the dump."""
        assert self._requests is not None
        assert self._maker is not None
        has_backward = self._requests.has_backward(key)
        try:
            call = self._requests.call(key)
            function = self._function(call.api.prefix, call.api.name)
            check_memory(call)
            inputs = self._maker.make(call)
            self._arguments = digest_of(call)
            if self._recorded is not None:
                if not call.exact:
                    return self._skip(key, said("module-settings-missing"), has_backward)
                if all(isinstance(argument, Plain) and argument.value is None for argument in flat(call.outputs)):
                    return self._skip(key, said("written-not-recorded"), has_backward)
                self._recorded.take(call)
            recorded = [info.dtype for info in flat(call.outputs) if isinstance(info, ArgumentTensor)]
            return self.check(key, call.api.name, function, inputs, has_backward, recorded, call)
        except MsprobeError as problem:
            return self._skip(key, problem.message, has_backward)
        except (UnreadableArgumentError, UnknownApiError, InputError) as problem:
            return self._skip(key, text_of(problem), has_backward)
        except MemoryError:
            return self._skip(key, said("memory-short"), has_backward)
        except Exception as problem:
            return self._skip(key, raised_text(problem), has_backward)

    def _function(self, prefix: str, name: str) -> Callable[..., Any]:
        """What the candidate calls: of an operator that the user has described that of torch_npu, where it is there."""
        if f"{prefix}." in _OF_USERS:
            return find_loaded(prefix, name, self._module)
        if name in self._operators:
            return function_of_npu(name) or self._operators[name]
        return find_function(prefix, name)

    def _skip(self, key: str, message: str, has_backward: bool) -> Answer:
        return skipped(key, message, has_backward, self._task.decimals, self.further)

    def check(
        self,
        key: str,
        api: str,
        function: Callable[..., Any],
        inputs: Inputs,
        has_backward: bool,
        recorded: list[str],
        call: ApiCall | None = None,
    ) -> Answer:
        """Check one call whose arguments are made. ``recorded``: the types of its recorded results."""
        if api.endswith("scaled_dot_product_attention"):
            _without_dropout(inputs)
        why = self._no_backward(api, function, inputs, has_backward, call)
        backward = has_backward and not why
        seed_draws(key, "candidate", self._task.seed)
        if api.rpartition(".")[2] in RANDOM or (is_dropout(api) and self._profile.own):
            if self._profile.own:
                return self._check_random(key, api, function, inputs, has_backward, why)
            return self._check_spread(key, function, inputs, has_backward)
        state = torch.get_rng_state()
        sides = self._run(key, api, function, inputs, backward, recorded)
        if sides.drew and self._recorded is None and self._profile.own:
            torch.set_rng_state(state)
            return self._check_random(key, api, function, inputs, has_backward, why)
        if call is not None and (other := other_shapes(call, sides.bench)):
            return self._skip(key, other, has_backward)
        rows = self._forward(key, api, sides.bench, sides.device, sides)
        forward = direction_status(rows, self._profile.warning)
        status, message = BLANK, ""
        if has_backward:
            why = why or sides.bench.backward_problem or sides.device.backward_problem
            if api.rpartition(".")[2] in _UP_TO_SIGN and self._profile.own:
                why = why or said("gradient-up-to-sign")
            if why:
                rows.append(JudgedResult(f"{key}.backward.output.0", "SKIP", why))
                status, message = "SKIP", why
            else:
                gradients = self._backward(key, api, sides.bench, sides.device, sides)
                status = direction_status(gradients, self._profile.warning)
                rows += gradients
        notes = self._repeat(function, inputs, backward, sides) if self._task.repeat > 1 else []
        if self._task.formula and backward:
            rows.append(self._formula(key, function, inputs))
            status = "error" if rows[-1].status == "error" else status
        answer = self._answer(key, rows, forward, status, message)
        answer.notes += notes
        if self._control is not None and sides.control is not None:
            answer.control = self._cells(
                self._forward(key, api, sides.bench, sides.control, sides)
                + (self._backward(key, api, sides.bench, sides.control, sides) if backward and not why else [])
            )
        if self._task.error_folder and answer.failed:
            errors_kept.save(Path(self._task.error_folder), key, inputs, sides.bench, sides.device)
        return answer

    def _answer(self, key: str, rows: list[JudgedResult], forward: str, backward: str, message: str) -> Answer:
        skips = "SKIP" in (forward, backward)
        result = [key, forward, backward, (message or said("call-skipped")) if skips else ""]
        worst = max((row.scaled for row in rows if row.scaled is not None), default=0.0)
        if worst == 0.0 and "error" in (forward, backward):
            worst = max((row.metrics.get("max_relative") or 0.0 for row in rows), default=0.0)
        return Answer(key, result, self._cells(rows), worst=worst)

    def _cells(self, rows: list[JudgedResult]) -> list[list[str]]:
        return [row.cells(self._task.decimals, *self.further, self._arguments) for row in rows]

    def _no_backward(
        self, api: str, function: Callable[..., Any], inputs: Inputs, has_backward: bool, call: ApiCall | None
    ) -> str:
        """Why a recorded backward is not run; empty if it is."""
        if not has_backward:
            return ""
        if "out" in inputs.kwargs:
            return said("out-has-no-gradient")
        if self._recorded is not None and call is not None:
            if self._recorded.has_none_of_its_own(call, function, inputs):
                return said("argument-returned")
            if unknown := unknown_gradients(call):
                return unknown
        if self._profile.all_gradients:
            return ""
        if api in _NO_BACKWARD:
            return said("backward-not-by-standard", api)
        if call is not None and len(list(flat(call.outputs))) > 1 and api not in _ONE_GRADIENT:
            return said("several-results-not-by-standard")
        return ""

    def _run(
        self,
        key: str,
        api: str,
        function: Callable[..., Any],
        inputs: Inputs,
        backward: bool,
        recorded: list[str],
        draws: Draws | None = None,
    ) -> Sides:
        """Run all sides. ``draws``: what the candidate draws, and the others are given."""
        bare, named = self._operators.get(api) or find_reference(function, api), api
        plain, unseeded = function, bare
        if draws is not None:
            function, bare = draws.noting(function), draws.given_to(bare)
        if self._cleaning is not None:
            function, bare, plain, unseeded = (
                cleaned(function_given, named, self._cleaning) for function_given in (function, bare, plain, unseeded)
            )
        autocast = reference.autocast_of(inputs, recorded) if "type" not in api else None
        state = torch.get_rng_state()
        try:
            device = self._candidate.run(function, inputs, backward, autocast)
        except Exception:
            if autocast is None:
                raise
            autocast = None
            device = self._candidate.run(function, inputs, backward)
        drew = not torch.equal(state, torch.get_rng_state())
        given = Given(inputs, inputs)
        if self._profile.own and isinstance(self._candidate, Machine):
            given = given_to(self._candidate, plain, inputs, device, autocast)
        elif self._profile.own:
            autocast = autocast or autocast_of_record(self._cpu, plain, inputs, device)
            given = given_to(self._cpu, plain, inputs, device, autocast)
        wide = reference.promoted(given.inputs, api, self._task.has_double_reference)
        bench = run_call(bare, wide, backward)
        if self._recorded is not None and self._cleaning is not None:
            device.outputs = leaves_of(self._cleaning(api, _unpacked(device.outputs), inputs.args, inputs.kwargs))
        if self._recorded is not None and backward:
            place_gradients(device, bench)
        movement = reference.MeasuredMovement()
        if self._profile.own:
            eps = _coarsest(device, given)
            if eps:
                movement = reference.disturbed(bare, wide, bench, eps, key, self._task.seed)
                for number in range(2 if draws is not None else 0):
                    off = draws.off(eps, number) if draws is not None else Draws()
                    reference.add_distances(movement.moved, bench, run_call(off.given_to(unseeded), wide, backward))
                # The kernel of a user is the one under suspicion on the CPU, too, and excuses nothing of itself.
                own = key.startswith(_OF_USERS)
                known = bare if draws is not None or (own and api in self._operators) else None if own else function
                ordinary = known and self._ordinary(known, given.typed, backward, autocast, None if own else device)
                if ordinary:
                    reference.add_errors_of(ordinary, movement.moved, bench, wide, eps)
                    if ordinary is not device:
                        movement.ordinary = reference.by_name(ordinary)
        control = None
        if self._control is not None:
            control = self._control.run(function, given.inputs, backward, autocast)
        return Sides(inputs, bench, device, control, movement, autocast, given, drew)

    def _ordinary(
        self,
        function: Callable[..., Any],
        inputs: Inputs,
        backward: bool,
        autocast: torch.dtype | None,
        device: Outcome | None,
    ) -> Outcome | None:
        """The same call by the CPU's own kernel of the same type; None where it has none.

        ``device``: what the candidate gave, if it called the same function.
        """
        on_cpu = self._candidate.executor.text in ("cpu", "auto", "auto:0") and self._candidate.device.type == "cpu"
        if on_cpu and device is not None:
            return device
        with contextlib.suppress(Exception):
            return self._cpu.run(function, inputs, backward, autocast)
        return None

    def _forward(self, key: str, api: str, bench: Outcome, device: Outcome, sides: Sides) -> list[JudgedResult]:
        name = f"{key}.forward.output"
        if len(bench.outputs) > len(device.outputs):
            message = said("result-counts-differ", len(device.outputs), len(bench.outputs))
            return [JudgedResult(f"{name}.0", "error", message)]
        return [
            self._judged(f"{name}.{place}", api, ours, device.outputs[place], sides, f"output.{place}")
            for place, ours in enumerate(bench.outputs)
        ]

    def _backward(self, key: str, api: str, bench: Outcome, device: Outcome, sides: Sides) -> list[JudgedResult]:
        """A row for each tensor among the arguments, those without a gradient too: the number says which one it is."""
        rows = []
        paths = sides.inputs.paths()
        if not self._profile.all_gradients:
            paths = [path for path in paths if path.partition(".")[0].isdigit()]
        for place, path in enumerate(paths):
            name = f"{key}.backward.output.{place}"
            if path not in bench.gradients:
                why = said("gradient-not-in-dump", path)
                if path not in sides.inputs.wanted:
                    why = said("argument-requires-none", path)
                rows.append(JudgedResult(name, "SKIP", why))
                continue
            ours, theirs = bench.gradients[path], device.gradients.get(path)
            rows.append(self._judged(name, api, ours, theirs, sides, path))
            if ours is None and theirs is None:
                rows[-1].message = said("argument-without-gradient", path)
        return rows

    def _judged(self, name: str, api: str, bench: Any, device: Any, sides: Sides, which: str) -> JudgedResult:
        if self._profile.own and api.rpartition(".")[2] in _UP_TO_SIGN:
            bench, device = sizes_of(bench), sizes_of(device)
        pair = ResultPair(name, value_of(bench), value_of(device))
        if which in sides.movement.moved:
            pair.movement = sides.movement.moved[which].numpy()
        pair.elementwise = which in sides.movement.elementwise
        if which in sides.movement.taken and _has_type_of_arguments(device, sides.given.typed):
            pair.taken = sides.movement.taken[which].numpy()
            pair.taken_units = units_taken_over(device.dtype, is_gradient=not which.startswith("output."))
        pair.from_float8 = any(is_float8(tensor) for tensor in sides.inputs.tensors())
        if isinstance(bench, torch.Tensor) and isinstance(device, torch.Tensor) and self._profile.own:
            coarse = sides.given.computed_in(device)
            pair.computed_in = "" if coarse is None else str(coarse).removeprefix("torch.")
            pair.rounded = rounded_to(bench, device.dtype if coarse is None else coarse)
            pair.ordinary = ordinary_beside(sides.movement.ordinary.get(which), device, which in sides.movement.moved)
        if isinstance(bench, torch.Tensor) and isinstance(device, torch.Tensor) and self._profile.by_element:
            widen(pair.bench, device)
        elif isinstance(pair.bench, Value) and isinstance(pair.device, Value) and pair.device.kind == "bfloat16":
            with np.errstate(over="ignore"):  # beyond the range of bfloat16 as well: an infinity
                pair.bench.array = pair.bench.array.astype(np.float32) if pair.bench.is_float else pair.bench.array
        return judge(pair, api.rpartition(".")[2], self._profile, dropout=is_dropout(api) and not self._profile.own)

    def _check_random(
        self, key: str, api: str, function: Callable[..., Any], inputs: Inputs, has_backward: bool, why: str
    ) -> Answer:
        """A call that draws random numbers, by what it drew itself."""
        backward = has_backward and not why
        bare = self._operators.get(api) or find_reference(function, api)
        draws = Draws()
        sides, device = None, None
        seed_draws(key, "candidate", self._task.seed)
        if self._recorded is None and not self._candidate.executor.compiled:
            with contextlib.suppress(Exception):  # it draws where nobody sees it: what is known of it is judged
                sides = self._run(key, api, function, inputs, backward, [], draws)
                device = sides.device if draws.all else None
        if device is None:
            sides = None
            seed_draws(key, "candidate", self._task.seed)
            device = self._candidate.run(function, inputs, backward)
            if isinstance(device, RecordedOutcome):
                device.place_alike(inputs)
        typed = inputs
        if isinstance(self._candidate, Machine):
            typed = given_to(self._candidate, function, inputs, device, None).typed
        call = random_call(key, bare, typed, backward, self._cpu, self._task.seed)
        related = call.relation(device)
        rows = worst_of(
            call.rows(device), self._forward(key, api, sides.bench, device, sides) if sides else [], related
        )
        forward = direction_status([row for row in rows if ".forward." in row.name], self._profile.warning)
        status, message = BLANK, ""
        if has_backward:
            gradients = [row for row in related if ".backward." in row.name]
            why = why or device.backward_problem
            if sides is not None and not why:
                gradients = worst_of(self._backward(key, api, sides.bench, device, sides), gradients)
            if not gradients:
                why = why or said("draw-not-visible")
                gradients = [JudgedResult(f"{key}.backward.output.0", "SKIP", why)]
            is_skip = all(row.status == "SKIP" for row in gradients)
            status = "SKIP" if is_skip else direction_status(gradients, self._profile.warning)
            message = gradients[0].message if is_skip else ""
            rows = [row for row in rows if ".forward." in row.name] + gradients
        answer = self._answer(key, rows, forward, status, message)
        if self._control is not None:
            seed_draws(key, "control", self._task.seed)
            answer.control = self._cells(call.rows(self._control.run(function, inputs, False)))
        return answer

    def _check_spread(self, key: str, function: Callable[..., Any], inputs: Inputs, has_backward: bool) -> Answer:
        """The same as published: how its results are spread, beside those of the CPU."""
        device = self._candidate.run(function, inputs, False)
        seed_draws(key, "reference", self._task.seed)
        bench = self._cpu.run(function, inputs, False)
        rows = _spreads(key, bench, device)
        seed_draws(key, "control", self._task.seed)
        control = [] if self._control is None else _spreads(key, bench, self._control.run(function, inputs, False))
        status, message = BLANK, ""
        if has_backward:
            status, message = "SKIP", said("draws-have-own-gradients")
            rows.append(JudgedResult(f"{key}.backward.output.0", "SKIP", message))
        answer = self._answer(key, rows, direction_status(rows, self._profile.warning), status, message)
        answer.control = self._cells(control)
        return answer

    def _repeat(self, function: Callable[..., Any], inputs: Inputs, backward: bool, sides: Sides) -> list[str]:
        """Notes of results that differ between runs of the candidate."""
        notes = []
        for number in range(1, self._task.repeat):
            again = self._candidate.run(function, inputs, backward, sides.autocast)
            for place, (first, second) in enumerate(zip(sides.device.outputs, again.outputs, strict=True)):
                if isinstance(first, torch.Tensor) and not same_bits(first, second):
                    notes.append(said("output-not-deterministic", place, number + 1, self._task.repeat))
            for path, gradient in sides.device.gradients.items():
                if gradient is not None and not same_bits(gradient, again.gradients[path]):
                    notes.append(said("gradient-not-deterministic", path, number + 1))
        return list(dict.fromkeys(notes))

    def _formula(self, key: str, function: Callable[..., Any], inputs: Inputs) -> JudgedResult:
        """The formula of the backward against differences of the forward, in double precision."""
        from msprobe.precheck.torch.formula import check_formula

        return check_formula(f"{key}{FORMULA}", function, reference.promoted(inputs, "", True), self._task.seed)


def _has_type_of_arguments(result: Any, inputs: Inputs) -> bool:
    """True if all float arguments, and gradients that come in, have the type of a result."""
    given = [*inputs.tensors(), *leaves_of(inputs.gradients or [])]
    types = {value.dtype for value in given if isinstance(value, torch.Tensor) and value.is_floating_point()}
    return isinstance(result, torch.Tensor) and types == {result.dtype}


def _spreads(key: str, bench: Outcome, device: Outcome) -> list[JudgedResult]:
    pairs = zip(bench.outputs, device.outputs, strict=True)
    return [spread.judge_spread(f"{key}.forward.output.{place}", *pair) for place, pair in enumerate(pairs)]


def find_reference(function: Callable[..., Any], api: str) -> Callable[..., Any]:
    """What the reference calls: the function itself, or what computes the same on a CPU."""
    if api.startswith("npu_"):
        from msprobe.precheck.torch.fused import FORWARD

        return FORWARD.get(api, function)
    return function


def _unpacked(outputs: list[Any]) -> Any:
    return outputs[0] if len(outputs) == 1 else outputs


def _coarsest(device: Outcome, given: Given) -> float:
    """The unit of rounding of the coarsest float type among the results, or that arguments are rounded to inside; of
    the arguments, without such a result.
    """
    units = [reference.eps_of(value.dtype) for value in device.outputs if isinstance(value, torch.Tensor)]
    units += [reference.eps_of(value.dtype) for value in device.gradients.values() if value is not None]
    units += [reference.eps_of(given.coarsest)] if given.coarsest is not None else []
    return max(units, default=0.0) or max((reference.eps_of(t.dtype) for t in given.typed.tensors()), default=0.0)


def _without_dropout(inputs: Inputs) -> None:
    if "dropout_p" in inputs.kwargs:
        inputs.kwargs["dropout_p"] = 0.0
    if len(inputs.args) > 4:
        inputs.args[4] = 0.0
