"""Calls and module passes, recorded as they happen: arguments before, results after.

Free of any framework: an adapter notices the calls and answers for its tensors
(:mod:`msprobe.capture.adapter`); names, numbers, order, filters and the tree of a record are the same for all.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msprobe.capture.adapter import Gradients, Modules, PlacedTensor, Tensors
from msprobe.capture.records import PLAIN, Describer, Keep, parts_of
from msprobe.capture.relayed import RelayedCalls
from msprobe.capture.relayed_units import arguments_of
from msprobe.capture.session import Session
from msprobe.capture.stacks import CallStack

NOT_RETURNED = {"error": "the pass did not return"}
_MOST_LEVELS = 20


class Unit:
    """A call or a module's pass between its beginning and its end."""

    __slots__ = (
        "attributes",
        "backward",
        "entry",
        "inputs",
        "kwinputs",
        "module",
        "name",
        "note",
        "number",
        "order",
        "parent",
        "recorded",
        "stack",
        "watched",
    )

    def __init__(self, entry: str, backward: str, order: int, stack: CallStack, parent: Any) -> None:
        self.entry = entry
        # The entry of its backward record.
        self.backward = backward
        self.order = order
        self.stack = stack
        # False: it has no place in the hierarchy.
        self.parent = parent
        self.module: Any = None
        self.name = ""
        self.number = 0
        self.recorded = False
        self.inputs: Any = []
        self.kwinputs: Any = {}
        # Of an object that is called: what it was given when it was made, described.
        self.attributes: Mapping[str, Any] | None = None
        # Its gradients are to be watched; and what the adapter noted of the arguments for that.
        self.watched = False
        self.note: Any = None


class Writer(ABC):
    """What is recorded of units, and how a finished record is put. An adapter says how values are described."""

    def __init__(self, session: Session, describer: Describer, keep: Keep) -> None:
        """``keep`` saves the values of a tensor; see :class:`msprobe.capture.records.Describer`."""
        self.session = session
        self.describer = describer
        self.keep = keep
        settings = session.settings
        self.filter = session.filter
        self.forward = settings.forward
        self.backward = settings.backward
        self.input = settings.input
        self.output = settings.output
        self.saving = session.saves_all or session.saves_some
        self.overflow = settings.keeps_few

    # ------------------------------------------------------------ what an adapter answers

    @abstractmethod
    def outputs_of(self, entry: str, result: Any) -> list[Any]:
        """The results of ``entry`` as the record has them."""

    @abstractmethod
    def is_kept(self, entry: str, tree: dict[str, Any]) -> bool:
        """Where an overflow check keeps few records: whether it keeps this one."""

    @abstractmethod
    def watch(self, unit: Any, result: Any) -> None:
        """The unit has returned: see to it that its backward record is written."""

    def facts_of(self, unit: Any) -> dict[str, Any]:
        """What a record says of the unit besides its arguments and results."""
        facts: dict[str, Any] = {"order": unit.order}
        if unit.stack.source:
            facts["source"] = unit.stack.source
        return facts

    # ------------------------------------------------------------ records

    def described(self, value: Any, path: str, entry: str) -> Any:
        """The tree of one value of ``entry``, its tensors saved below ``path`` if that entry is to be saved."""
        if self.saving and self.session.saves(entry):
            return self.describer.describe_kept(value, path, self.keep)
        return self.describer.describe(value)

    def tree_of(self, unit: Any) -> dict[str, Any]:
        """The beginning of a forward record: the arguments."""
        tree: dict[str, Any] = {}
        if self.input:
            tree["input_args"] = unit.inputs
            tree["input_kwargs"] = unit.kwinputs
            if unit.attributes:
                tree["attributes"] = unit.attributes
        return tree

    def finish(self, unit: Any, tree: dict[str, Any]) -> None:
        """The end of a forward record."""
        tree["msprobe"] = self.facts_of(unit)
        self.put(unit.entry, tree, unit.stack, unit.parent)

    def put(self, entry: str, tree: dict[str, Any], stack: CallStack | None = None, parent: Any = False) -> None:
        """A finished record, if an overflow check does not drop it."""
        if self.overflow:
            self.session.put_checked(entry, tree, self.is_kept, stack, parent)
        else:
            self.session.put(entry, tree, stack, parent)


class CallWriter(Writer):
    """Writes the records of calls that have begun."""

    def returned(self, unit: Any, result: Any) -> None:
        """A call has returned; nothing of that is described yet."""

    def how_it_failed(self, error: BaseException) -> dict[str, str]:
        """What a record says of a call that raised."""
        return {"error": f"{type(error).__name__}: {error}"[:2000]}

    def end_call(self, unit: Any, result: Any, outputs: Any = None) -> None:
        """After the call. ``outputs``: what to record as its results instead."""
        try:
            self.returned(unit, result)
            if unit.recorded:
                tree = self.tree_of(unit)
                tree["is_recompute"] = unit.stack.recompute
                if self.output:
                    tree["output"] = self.outputs_of(unit.entry, result if outputs is None else outputs)
                self.finish(unit, tree)
            if unit.watched:
                self.watch(unit, result)
        except Exception as error:
            self.session.fault(unit.entry, error)

    def fail_call(self, unit: Any, error: BaseException) -> None:
        """The call raised: its arguments are recorded with what it said."""
        try:
            if unit.recorded:
                tree = self.tree_of(unit)
                tree["is_recompute"] = unit.stack.recompute
                if self.output:
                    tree["output"] = [None]
                tree.update(self.how_it_failed(error))
                self.finish(unit, tree)
        except Exception as problem:
            self.session.fault(unit.entry, problem)


class PassWriter(Writer):
    """Writes the records of passes of modules, from their beginning to their end."""

    # Where `is_recompute` stands in a record: behind the parameters, or (False) behind the arguments.
    recompute_last = False

    # ------------------------------------------------------------ what an adapter answers

    @abstractmethod
    def inputs_of(self, entry: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments of ``entry`` as the record has them: those by position, those by keyword."""

    def new_pass(self, entry: str, backward: str, order: int, stack: CallStack, parent: Any) -> Any:
        """A pass that begins."""
        return Unit(entry, backward, order, stack, parent)

    @abstractmethod
    def note_pass(self, unit: Any, args: Sequence[Any], kwargs: dict[str, Any], wanted: bool) -> None:
        """Before the pass: what must be known to find its gradients. ``wanted``: a filter wants the record."""

    def how_a_pass_failed(self, error: BaseException) -> dict[str, str]:
        """What a record says of a pass that raised."""
        return {"error": f"{type(error).__name__}: {error}"[:2000]}

    @abstractmethod
    def parameters_of(self, entry: str, module: Any) -> dict[str, Any]:
        """The module's own parameters as the record has them."""

    @abstractmethod
    def state_of(self, module: Any) -> dict[str, Any]:
        """What else the record of a pass says of the module."""

    @abstractmethod
    def ran(self, unit: Any) -> None:
        """The first pass of a module in this step is recorded: the place for its parameters' gradients."""

    # ------------------------------------------------------------ life

    def begin_pass(self, name: str, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The module, whose entries carry ``name`` (``Cell.blk.Blk``), is about to run."""
        session = self.session
        number = session.number(name)
        entry = f"{name}.forward.{number}"
        wanted = self.filter is None or self.filter.enter_module(entry)
        stack = session.stacks.here()
        running: list[Any] = session.thread.modules
        while running and isinstance(running[-1], Unit) and running[-1].stack.depth >= stack.depth:
            # It raised or was interrupted; nobody said so.
            self.end_pass(running.pop(), None, NOT_RETURNED)
        unit = self.new_pass(entry, f"{name}.backward.{number}", session.next_order(), stack, session.parent())
        unit.name, unit.number, unit.module = name, number, module
        running.append(unit)
        unit.recorded = wanted and self.forward
        if unit.recorded and self.input:
            unit.inputs, unit.kwinputs = self.inputs_of(entry, args, kwargs)
        if self.backward:
            self.note_pass(unit, args, kwargs, wanted)

    def is_running(self, module: Any) -> bool:
        """Whether the beginning of a pass of this module was recorded."""
        running = self.session.thread.modules
        return bool(running) and (running[-1].module is module or any(unit.module is module for unit in running))

    def end_passes(self, module: Any, result: Any, error: BaseException | None = None) -> None:
        """The module has run, or raised ``error``; those inside of it whose end was not seen have, too."""
        running: list[Any] = self.session.thread.modules
        while True:
            unit = running.pop()
            done = unit.module is module
            if isinstance(unit, Unit):
                problem = {} if error is None else self.how_a_pass_failed(error)
                self.end_pass(unit, result if done else None, problem if done else NOT_RETURNED)
            if done:
                break

    def end_pass(self, unit: Any, result: Any, problem: dict[str, str]) -> None:
        """One pass is over. ``problem``: what to say of it if it did not return."""
        module = unit.module
        if unit.recorded:
            tree = self.tree_of(unit)
            if not self.recompute_last:
                tree["is_recompute"] = unit.stack.recompute
            if self.output:
                tree["output"] = [None] if problem else self.outputs_of(unit.entry, result)
            tree["parameters"] = self.parameters_of(unit.entry, module)
            if self.recompute_last:
                tree["is_recompute"] = unit.stack.recompute
            if problem:
                tree.update(problem)
            tree.update(self.state_of(module))
            self.finish(unit, tree)
            if unit.number == 0 and self.backward and not self.overflow:
                self.ran(unit)
        if self.filter is not None:
            self.filter.leave_module(unit.entry)
        if unit.watched and not problem:
            self.watch(unit, result)


class UnitRecorder(CallWriter, PassWriter):
    """Writes the records of calls and passes for an adapter that answers for its tensors, gradients and modules."""

    def __init__(
        self, session: Session, describer: Describer, tensors: Tensors, gradients: Gradients, overflowed: Any
    ) -> None:
        super().__init__(session, describer, tensors.keep)
        self.tensors = tensors
        self.gradients = gradients
        self.modules: Modules | None = None
        # (entry, tree) -> True if an overflow check keeps the record.
        self.overflowed = overflowed
        # Where there are listeners, those who are notified of calls in the place of this.
        self.relayed: RelayedCalls | None = None
        # Where calls that fail are looked for: waits until a call is done, and raises if it failed.
        self.wait: Callable[[], None] | None = None

    # ------------------------------------------------------------ calls

    def begin_call(
        self, key: str, args: Sequence[Any], kwargs: dict[str, Any], number: int | None = None
    ) -> Unit | None:
        """Before a call of ``key`` (``Functional.tanh``); None if nothing of it is wanted, or it failed.

        ``number``: the one it has already.
        """
        session = self.session
        entry = key
        kwargs = kwargs or {}
        try:
            base = f"{key}.{session.number(key) if number is None else number}"
            entry = base + ".forward"
            flt = self.filter
            wanted = flt is None or flt.wants_call(entry)
            watched = self.backward and (flt is None or flt.may_want(base + ".backward"))
            recorded = wanted and self.forward
            if not recorded and not watched:
                return None
            parent = session.parent() if session.with_construct else False
            unit = Unit(entry, base + ".backward", session.next_order(), session.stacks.here(), parent)
            unit.recorded = recorded
            if recorded and self.input:
                unit.inputs, unit.kwinputs = self.inputs_of(entry, args, kwargs)
            unit.watched = watched
            if watched:
                unit.note = self.gradients.note(self.places(args, kwargs))
            return unit
        except Exception as error:
            session.fault(entry, error)
            return None

    # ------------------------------------------------------------ passes of modules

    def enter(self, name: str, module: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The module, whose entries carry ``name`` (``Cell.blk.Blk``), is about to run."""
        try:
            self.begin_pass(name, module, args, kwargs)
        except Exception as error:
            self.session.fault(name, error)

    def leave(self, name: str, module: Any, result: Any, error: BaseException | None = None) -> None:
        """The module has run, or raised ``error``."""
        if not self.is_running(module):
            return
        try:
            self.end_passes(module, result, error)
        except Exception as error:
            self.session.fault(name, error)

    def fail_all(self) -> None:
        """An error has ended the passes that still run: record them so."""
        running: list[Any] = self.session.thread.modules
        while running:
            self.end_pass(running.pop(), None, NOT_RETURNED)

    def leave_all(self) -> None:
        """Recording stops: passes that still run are not waited for."""
        self.session.thread.modules.clear()

    def note_pass(self, unit: Unit, args: Sequence[Any], kwargs: dict[str, Any], wanted: bool) -> None:
        if wanted or self.filter is not None:
            unit.watched = True
            unit.note = self.gradients.note(self.places(args, kwargs))

    def parameters_of(self, entry: str, module: Any) -> dict[str, Any]:
        assert self.modules is not None
        return {
            key: self.described(value, f"{entry}.parameters.{key}", entry)
            for key, value in self.modules.own_parameters(module)
        }

    def state_of(self, module: Any) -> dict[str, Any]:
        assert self.modules is not None
        return {} if self.modules.is_training(module) else {"training": False}

    def ran(self, unit: Unit) -> None:
        assert self.modules is not None
        self.modules.ran(unit.name, unit.module)

    # ------------------------------------------------------------ records

    def is_kept(self, entry: str, tree: dict[str, Any]) -> bool:
        return bool(self.overflowed(entry, tree))

    def watch(self, unit: Unit, result: Any) -> None:
        if unit.note is not None:
            self.gradients.watch(unit, unit.note, self.places_of_results(result))

    def inputs_of(self, entry: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        inputs = [self.described(value, f"{entry}.input.{i}", entry) for i, value in enumerate(args)]
        return inputs, {word: self.described(value, f"{entry}.kwargs.{word}", entry) for word, value in kwargs.items()}

    def outputs_of(self, entry: str, result: Any) -> list[Any]:
        """See :class:`Writer`. A tuple is several results, anything else is one."""
        several = result if type(result) is tuple else (result,)
        return [self.described(value, f"{entry}.output.{i}", entry) for i, value in enumerate(several)]

    # ------------------------------------------------------------ tensors in arguments and results

    def places(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[PlacedTensor]:
        """The tensors among the arguments, nested ones too."""
        placed_tensors: list[PlacedTensor] = []
        for i, value in enumerate(args):
            self._collect(value, f"input.{i}", placed_tensors, ())
        for word, value in kwargs.items():
            self._collect(value, f"kwargs.{word}", placed_tensors, ())
        return placed_tensors

    def places_of_results(self, result: Any) -> list[PlacedTensor]:
        """The tensors in a result, nested ones too."""
        placed_tensors: list[PlacedTensor] = []
        several = result if type(result) is tuple else (result,)
        for i, value in enumerate(several):
            self._collect(value, f"output.{i}", placed_tensors, ())
        return placed_tensors

    def _collect(self, value: Any, path: str, placed_tensors: list[PlacedTensor], above: tuple[int, ...]) -> None:
        if self.tensors.is_tensor(value):
            placed_tensors.append((path, value))
        elif type(value) not in PLAIN and len(above) < _MOST_LEVELS and id(value) not in above:
            parts = parts_of(value)
            if parts is not None:
                names, items = parts
                for name, item in zip(range(len(items)) if names is None else names, items, strict=True):
                    self._collect(item, f"{path}.{name}", placed_tensors, (*above, id(value)))


def recorded(units: UnitRecorder, key: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """``original`` with its calls recorded as ``{key}.{n}``; what it calls inside is part of it."""

    @functools.wraps(original)
    def replacement(*args: Any, **kwargs: Any) -> Any:
        return run_recorded(units, key, original, args, kwargs)

    return replacement


def run_recorded(
    units: UnitRecorder,
    key: str,
    original: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    owner: tuple[Any, ...] = (),
    final: Callable[[Any], tuple[Any, Any]] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Any:
    """Run ``original(*owner, *args, **kwargs)`` as one call ``{key}.{n}``.

    ``owner`` is passed and not recorded (the object of a method). ``final`` makes of the result what the caller gets
    and what is recorded. ``attributes``: what the object was given when it was made, described.
    """
    session = units.session
    thread = session.thread
    if thread.muted or not session.recording:
        return original(*owner, *args, **kwargs)
    thread.muted += 1
    try:
        target: Any = units
        if units.relayed is None:
            unit: Any = units.begin_call(key, args, kwargs)
        else:
            target = units.relayed
            unit = target.begin_call(key, args, kwargs, functools.partial(original, *owner))
        if unit is None:
            return original(*owner, *args, **kwargs)
        given, words = arguments_of(unit, args, kwargs)
        dumped: Unit | None = unit if isinstance(unit, Unit) else unit.dumped
        if dumped is not None:
            dumped.attributes = attributes
        try:
            result = original(*owner, *given, **words)
            if units.wait is not None:
                units.wait()
        except BaseException as error:
            target.fail_call(unit, error)
            raise
        outputs = None
        if final is not None:
            result, outputs = final(result)
        other = target.end_call(unit, result, outputs)
        return result if other is None else other[0]
    finally:
        thread.muted -= 1
