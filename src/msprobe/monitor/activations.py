"""Activations and their gradients: what goes into modules and comes out, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msprobe.capture.events import Gradient, ModulePass
from msprobe.capture.listeners import Observer, Wants
from msprobe.capture.records import parts_of
from msprobe.guard import pass_on
from msprobe.monitor.gathering import TensorCells
from msprobe.monitor.names import exactly
from msprobe.monitor.state import ConfiguredState
from msprobe.monitor.watched import WatchedModule

_DEPTH = 8


class _Pass:
    """A pass of a module whose gradients may still come."""

    __slots__ = ("arguments", "cells", "micro_step", "name", "results", "stage")

    def __init__(self, stage: int, name: str, micro_step: int) -> None:
        self.stage = stage
        self.name = name
        self.micro_step = micro_step
        # Place in gradients -> the end of the row's name.
        self.arguments: dict[str, str] = {}
        self.results: dict[str, str] = {}
        # The gradients that came: end of the row's name -> cells.
        self.cells: dict[str, TensorCells] = {}


class Activations(Observer):
    """Measures what goes into modules and comes out."""

    is_careful = True

    def __init__(self, state: ConfiguredState) -> None:
        self.state = state
        framework = self._framework = state.framework
        self._tensor, self._unwatched, self._repeats = framework.tensor, framework.unwatched, framework.repeats
        config = state.config
        directions = ["forward"] + (["backward"] if config.backward else [])
        modules = ["*"] if state.config.all_modules else [exactly(path) for path in state.watched.paths()]
        self.wants = Wants(kinds=("pass",), modules=modules, directions=directions)  # type: ignore[arg-type]
        self._running: dict[str, list[tuple[_Pass | None, list[tuple[str, TensorCells]]]]] = {}
        # Passes of this step by (key, number), as long as gradients may come; those of which some came, in order.
        self._passes: dict[tuple[str, int], _Pass] = {}
        self._came: dict[_Pass, None] = {}
        # key -> how often it ran in this step, and in this micro step.
        self._times: dict[tuple[str, bool], int] = {}
        self._calls: dict[tuple[str, int, bool], int] = {}
        # Of each model: whether it trains, and the micro step that runs, those of evaluation counted apart.
        self._trains: dict[int, bool] = {}
        self._micro_steps: dict[tuple[int, bool], int] = {}
        # key -> passes that activation checkpointing may still repeat: micro step -> names, the last first.
        self._to_repeat: dict[str, list[tuple[int, str]]] = {}

    def step_begin(self, event: Any) -> None:
        """Nothing of the last step is left."""
        for table in (self._running, self._passes, self._came, self._times, self._calls, self._to_repeat):
            table.clear()
        self._trains.clear()
        self._micro_steps.clear()

    # ---------------------------------------------------------------- forward

    def before(self, event: Any) -> None:
        """A module is about to run."""
        with self._unwatched():
            self._before(event)

    def _before(self, event: ModulePass) -> None:
        state, key = self.state, event.key
        repeats, trains = self._repeats(event), self._framework.trains(event.module)
        module = state.watched.modules.get(key)
        is_evaluated = not trains and not self._framework.has_gradients()
        if key in state.watched.roots and module is not None and not repeats and not is_evaluated:
            stage = module.stage
            self._trains[stage] = trains
            self._micro_steps[stage, trains] = self._micro_steps.get((stage, trains), -1) + 1
        measured = key in state.watched.measured
        kept: list[tuple[str, TensorCells]] = []
        entry: _Pass | None = None
        if module is not None and measured and not is_evaluated:
            name, micro_step = self._place(key, module, trains, repeats)
            entry = _Pass(module.stage, name, micro_step)
            arguments = list(_arguments_of(event.args, event.kwargs, self._tensor))
            records = state.config.forward and not repeats and trains
            ends = [end for _, end, _ in arguments]
            for (place, _, tensor), end in zip(arguments, _numbered(ends), strict=True):
                entry.arguments[place] = f".input{end}"
                if records and tensor is not None:
                    kept.append((f".input{end}", state.meter.measure(tensor)))
            if not records:
                kept = _NOT_RECORDED
            if state.config.backward and self._framework.has_gradients():
                self._passes[key, event.number] = entry
        self._running.setdefault(key, []).append((entry, kept))

    def _place(self, key: str, module: WatchedModule, trains: bool, repeats: bool) -> tuple[str, int]:
        """The row's name and micro step of the pass that begins. ``trains``: whether the module itself does."""
        name = module.name
        if repeats:
            waiting = self._to_repeat.get(key)
            if waiting:
                # The oldest micro step is the one that goes backward; its last pass comes first.
                micro_step = waiting[0][0]
                for place in range(len(waiting) - 1, -1, -1):
                    if waiting[place][0] == micro_step:
                        return waiting.pop(place)[1], micro_step
            return name, 0
        trains = self._trains.get(module.stage, trains)
        times = self._times.get((key, trains), 0)
        self._times[key, trains] = times + 1
        micro_step = self._micro_steps.get((module.stage, trains), times) % self.state.micro_steps
        call = self._calls.get((key, micro_step, trains), 0)
        self._calls[key, micro_step, trains] = call + 1
        if call:
            name = f"{name}#{call}"
        self._to_repeat.setdefault(key, []).append((micro_step, name))
        return name, micro_step

    def after(self, event: Any, result: Any) -> None:
        """It has run."""
        with self._unwatched():
            self._after(event, result)

    def _after(self, event: ModulePass, result: Any) -> None:
        running = self._running.get(event.key)
        if not running:
            return
        entry, kept = running.pop()
        if entry is None:
            return
        state = self.state
        results = list(_results_of(result, self._tensor))
        for place, end, tensor in results:
            entry.results[place] = f".output{end}"
            if kept is not _NOT_RECORDED:
                cells = state.meter.measure(tensor) if tensor is not None else state.meter.nothing()
                kept.append((f".output{end}", cells))
        if kept is not _NOT_RECORDED:
            for end, cells in kept:
                state.gathering.add("actv", entry.stage, entry.name + end, cells, entry.micro_step)

    def failed(self, event: Any) -> None:
        """It has raised."""
        key = event.event.key
        running = self._running.get(key)
        if running:
            running.pop()
        if key in self.state.watched.roots and not self._repeats(event.event):
            self._take_back(self.state.watched.modules[key].stage)

    def _take_back(self, stage: int) -> None:
        """A pass of a whole model has raised: what its micro step has measured is of no batch that counts."""
        trains = self._trains.get(stage, True)
        times = self._micro_steps.get((stage, trains))
        if times is None:
            return
        self._micro_steps[stage, trains] = times - 1
        micro_step = times % self.state.micro_steps
        self.state.gathering.take_back("actv", stage, micro_step)
        for call in [call for call in self._calls if call[1] == micro_step]:
            if self.state.watched.modules[call[0]].stage == stage:
                del self._calls[call]
        for key, waiting in self._to_repeat.items():
            if self.state.watched.modules[key].stage == stage:
                waiting[:] = [entry for entry in waiting if entry[0] != micro_step]
        for place in [
            place
            for place, place_of_pass in self._passes.items()
            if (place_of_pass.stage, place_of_pass.micro_step) == (stage, micro_step)
        ]:
            self._came.pop(self._passes.pop(place), None)

    # ---------------------------------------------------------------- backward

    def gradient(self, event: Any) -> None:
        """A gradient has come back through a pass."""
        assert isinstance(event, Gradient)
        entry = self._passes.get((event.key, event.number))
        if entry is None or event.gradient is None:
            return
        end = (entry.arguments if event.side == "argument" else entry.results).get(event.place)
        if end is not None:
            with self._unwatched():
                entry.cells[end] = self.state.meter.measure(event.gradient)
            # In the order in which their last gradient came.
            self._came.pop(entry, None)
            self._came[entry] = None

    def flush(self) -> None:
        """All gradients of the step have come: their rows."""
        state = self.state
        for entry in self._came:
            for end in (*entry.arguments.values(), *entry.results.values()):
                cells = entry.cells.get(end) or state.meter.nothing()
                state.gathering.add("actv_grad", entry.stage, entry.name + end, cells, entry.micro_step)
        self._came.clear()


_NOT_RECORDED: list[tuple[str, TensorCells]] = []


def _numbered(ends: Sequence[str]) -> list[str]:
    """The ends of names: a number for each where there are several, none where there is one alone."""
    return [""] if ends == ["_0"] else list(ends)


def _arguments_of(args: Sequence[Any], kwargs: Mapping[str, Any], kind: type) -> Iterator[tuple[str, str, Any]]:
    """The tensors among the arguments: numbered in the order in which they come, values that are none left out."""
    number = 0
    named = [(f"input.{i}", value) for i, value in enumerate(args)]
    named += [(f"kwargs.{word}", value) for word, value in kwargs.items()]
    for place, value in named:
        if isinstance(value, kind):
            yield place, f"_{number}", value
            number += 1
            continue
        inner = [leaf for leaf in _walk(value, place, "", 0, set(), kind) if leaf[2] is not None]
        if inner:
            for inner_place, end, tensor in inner:
                yield inner_place, f"_{number}{end}", tensor
            number += 1


def _results_of(result: Any, kind: type) -> Iterator[tuple[str, str, Any]]:
    """The parts of a result, what is no tensor with None: a tuple's and a list's by number, a dict's by key."""
    if isinstance(result, kind):
        yield "output.0", "", result
        return
    base = "output" if isinstance(result, tuple) else "output.0"
    leaves = list(_walk(result, base, "", 0, set(), kind))
    if isinstance(result, tuple) and len(result) == 1 and len(leaves) == 1:
        yield leaves[0][0], "", leaves[0][2]
        return
    yield from leaves


def _walk(value: Any, place: str, end: str, depth: int, seen: set[int], kind: type) -> Iterator[tuple[str, str, Any]]:
    if isinstance(value, kind):
        yield place, end, value
        return
    parts = None
    if depth < _DEPTH and id(value) not in seen and not isinstance(value, (str, bytes, int, float, type(None))):
        try:
            parts = parts_of(value)
        except Exception as error:
            pass_on(error)
            parts = None
    if parts is None:
        yield place, end, None
        return
    seen.add(id(value))
    names, items = parts
    for number, item in enumerate(items):
        name = number if names is None else names[number]
        yield from _walk(
            item, f"{place}.{name}", f"{end}_{number}" if names is None else f"{end}.{name}", depth + 1, seen, kind
        )
