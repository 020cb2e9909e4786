"""The first micro-steps of one model: what each begins with, put into the pack of the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msprobe import log
from msprobe.config_check import settings as dynamic
from msprobe.config_check.framework import CheckedFramework, Remove, features
from msprobe.config_check.random_calls import RandomCalls, common_states
from msprobe.environment.configuration import collecting
from msprobe.environment.configuration.pack import (
    PackWriter,
    as_json,
    dataset_entry,
    digests_entry,
    random_entry,
    random_state_entry,
    weights_entry,
)
from msprobe.messages import said


class Collection:
    """Watches the first of ``models`` for ``steps`` forward passes. What fails in it ends it, and is reported once."""

    def __init__(
        self,
        framework: CheckedFramework,
        models: Sequence[Any],
        writer: PackWriter,
        steps: int,
        calls: RandomCalls,
        count_step: Callable[[int], None],
    ) -> None:
        self._framework, self._models, self._writer = framework, list(models), writer
        self._steps, self._calls, self._count_step = steps, calls, count_step
        self._step = 0
        self._states: dict[str, dict[str, str]] = {}
        self._remove: Remove | None = None
        #: The settings that were given; while Megatron's are not known they are asked for once more.
        self.given: dict[str, Any] | None = None
        self.is_watching = True

    def begin(self) -> None:
        """Watch the model."""
        self._count_step(0)
        self._remove = self._framework.watch(self._models[0], self.before, self.after)
        if self._remove is None:
            self._calls.end()
            log.warning(said("config-check-of-graph"))

    def wait(self) -> None:
        """Leave the model alone; the program calls ``before`` and ``after``."""
        self._count_step(0)

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A micro-step begins with these inputs."""
        if self.is_watching:
            self._guarded(lambda: self._collect(args, kwargs))

    def after(self) -> None:
        """Its forward pass is over."""
        if self.is_watching:
            self._guarded(self._finish_step)

    def end(self) -> None:
        """Take everything off the model and the random functions, and let go of the model."""
        if self.is_watching and not self._states:
            log.warning(said("config-check-without-forward"))
        self.is_watching = False
        self._calls.end()
        remove, self._remove = self._remove, None
        self._models, self.given = [], None
        if remove is not None:
            remove()

    def _collect(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._step >= self._steps:
            self.end()
            return
        chosen, rank, step = self._framework, self._framework.rank(), self._step
        if self._framework.may_compile(self._models):
            self._calls.end()
        self._states[str(step)] = {**common_states(), **chosen.generator_states()}
        inputs, input_digests = features({"args": args, "kwargs": kwargs}, chosen)
        parameters = chosen.parameters(self._models)
        measured = dict(zip(parameters, chosen.measure(list(parameters.values())), strict=True))
        weights = {name: value.statistics for name, value in measured.items() if value is not None}
        digests = {name: value.digest for name, value in measured.items() if value is not None and value.digest}
        entries = {
            dataset_entry(step, rank): as_json(inputs),
            weights_entry(step, rank): as_json(weights),
            digests_entry(step, rank): as_json({"dataset": input_digests, "weights": digests}),
        }
        if self.given is not None:
            settings = dynamic.megatron_settings()
            if settings:
                entries.update(collecting.dynamic_entry({**settings, **self.given}))
            self.given = None
        self._writer.add(entries | self._random(rank))

    def _finish_step(self) -> None:
        self._step += 1
        self._count_step(self._step)
        if self._step < self._steps:
            return
        entries = self._random(self._framework.rank())
        self.end()
        self._writer.add(entries)

    def _random(self, rank: int) -> dict[str, bytes]:
        state = {
            "seeds": self._calls.seeds,
            "states": self._states,
            "dropout": self._framework.dropout(self._models),
        }
        return {random_entry(rank): as_json(self._calls.calls()), random_state_entry(rank): as_json(state)}

    def _guarded(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as problem:
            log.once("config_check: collection", "error", said("config-check-ends", problem))
            try:
                self.end()
            except Exception as further:
                log.debug(f"config_check: {further}")
