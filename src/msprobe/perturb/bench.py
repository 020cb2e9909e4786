"""What the listeners of the free benchmark have in common: which calls, what is said and written of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msprobe import log
from msprobe.capture.events import Call, Direction, EventKind, Step
from msprobe.capture.listeners import Cadence, Wants
from msprobe.config.settings import FreeBenchmark, PerturbationMode, Settings
from msprobe.guard import pass_on
from msprobe.messages import said, text_of
from msprobe.perturb.checking import Checks, Question, ResultDeviation
from msprobe.perturb.framework import Framework, Invocation
from msprobe.perturb.names import ChosenCalls, is_sampled
from msprobe.perturb.operators import is_left_out, writes
from msprobe.perturb.preheat import Preheat
from msprobe.perturb.results import DeviationRow, Results
from msprobe.perturb.second_runs import NotPerturbedError, tensors_of
from msprobe.perturb.trees import leaves

# Of a second run: its inputs, its results, and what compares them. Less memory than this is not asked for.
_LITTLE = 1 << 24


@dataclass(frozen=True)
class WatchedCall:
    """A call between its beginning and its end. ``copies``: of its arguments, where it writes to them."""

    call: Invocation
    copies: Invocation | None
    versions: Sequence[int]

    @property
    def first(self) -> Invocation:
        """The call as it was before it ran."""
        return self.copies or self.call


class Bench:
    """See the module's text. ``rank``: that of this process, None for a single one."""

    def __init__(
        self,
        settings: Settings,
        framework: Framework,
        rank: Callable[[], int | None],
        columns: Sequence[str],
        folder: Callable[[int], Path],
        summary: Callable[[], Path],
        words: Callable[[str], Sequence[str]] = lambda key: (),
    ) -> None:
        assert settings.free_benchmark is not None
        self.settings: FreeBenchmark = settings.free_benchmark
        self.framework = framework
        self.rank = rank
        self.calls = ChosenCalls(self.settings, words)
        preheats = self.settings.if_preheat and self.settings.handler == "check"
        self.preheat = Preheat(self.settings.preheat_step, self.settings.max_sample) if preheats else None
        self.checks = Checks(framework, self.settings, self.preheat)
        self.results = Results(columns, folder, summary)
        self.cadence = Cadence(
            steps=frozenset(settings.steps) if settings.steps else None,
            ranks=frozenset(settings.ranks) if settings.ranks else None,
        )
        # Calls that wrote to their arguments though their names do not say so.
        self._writers: set[str] = set()
        self._counts: dict[str, int] = {}
        self._has_begun = False

    def wants(self, directions: Sequence[Direction]) -> Wants:
        """For the listener. What an optimizer calls in its step is not looked at, so steps are wanted, too."""
        names = self.calls.patterns()
        kinds = frozenset[EventKind](("call", "optimizer"))
        return Wants(kinds=kinds, names=(*names, "Optimizer.*") if names else (), directions=directions)

    # ---------------------------------------------------------------- steps

    def step_begin(self, event: Step) -> None:
        """A step begins."""
        self._has_begun = True
        self._counts.clear()
        if self.preheat is not None:
            self.preheat.begin_step()

    def step_end(self, event: Step) -> None:
        """It is over: what was found is written."""
        if self.preheat is not None:
            self.preheat.end_step()
        self.results.write_summary(is_last=False)

    def end(self) -> None:
        """The program is over."""
        self.results.write_summary()
        if self._has_begun:
            for line in self.calls.unmatched():
                log.warning(f"{line}.")
            self.results.log_summary(self.settings.handler == "fix")
            self._has_begun = False

    # ---------------------------------------------------------------- calls

    def begin(self, event: Call) -> WatchedCall | None:
        """A call is about to be made; None if it is not looked at."""
        key, fw, settings = event.key, self.framework, self.settings
        if not self.calls.has(key, event.number):
            return None
        self.results.called(key)
        why = self._why_not(event)
        if why is not None:
            if why:
                self.note(event, why, "debug" if is_left_out(key) else "info")
            return None
        if not is_sampled(event.name, event.step, settings.sample_ratio):
            return None
        count = self._counts[key] = self._counts.get(key, 0) + 1
        if settings.max_calls_per_api is not None and count > settings.max_calls_per_api:
            return None
        assert event.function is not None
        call = Invocation(event.function, tuple(event.args), dict(event.kwargs), fw.context())
        is_written = key in self._writers or writes(key, event.kwargs)
        copies = self.checks.seconds.prepare("no_change", key, call).call if is_written else None
        return WatchedCall(call, copies, () if is_written else self._versions(call))

    def is_unwritten(self, event: Call, watched: WatchedCall) -> bool:
        """False if the call turned out to write to its arguments, of which there are no copies: from the next one on
        there are.
        """
        if watched.copies is not None or self._versions(watched.call) == watched.versions:
            return True
        self._writers.add(event.key)
        self.note(event, said("writes-to-arguments"))
        return False

    def _why_not(self, event: Call) -> str | None:
        """Why a call is not made again: a text, empty for what nobody asks about; None if it is."""
        if is_left_out(event.key):
            return said("call-left-out")
        if not event.can_repeat:
            return said("called-function-unknown")
        fw, has_float = self.framework, False
        refused = fw.why_not_call(event.key)
        if refused:
            return refused
        for _, leaf in leaves((tuple(event.args), dict(event.kwargs))):
            why = fw.why_not(leaf)
            if why:
                return why
            has_float = has_float or (fw.is_tensor(leaf) and fw.is_float(leaf))
        return None if has_float else ""

    def _versions(self, call: Invocation) -> Sequence[int]:
        return self.framework.versions([leaf for _, leaf in tensors_of(self.framework, call)])

    def check(self, question: Question) -> None:
        """Ask in each mode, and write what differs."""
        for mode in self.settings.modes:
            self._check(mode, question)

    def _check(self, mode: PerturbationMode, question: Question) -> None:
        event, own = question.event, question.own
        self.attempt(event, mode)
        self.checks.on_sample = functools.partial(self._log_sample, event.step, self._entry(event))
        if self.lacks_memory(own):
            self.note(event, said("too-little-memory"))
            return
        try:
            deviations = self.checks.check(mode, question)
        except NotPerturbedError as reason:
            self.note(event, text_of(reason))
            return
        except Exception as error:
            pass_on(error)
            self.note(event, said("second-run-failed", type(error).__name__, _first_line(error)), "warning")
            return
        self.results.checked(event.key)
        for deviation in deviations:
            self._write(event, mode, deviation, len(own))

    def lacks_memory(self, own: Sequence[Any]) -> bool:
        """True if a second run may need more memory than there is."""
        fw = self.framework
        tensors = [argument for argument in own if fw.is_tensor(argument)]
        needed = 2 * sum(fw.nbytes(argument) for argument in tensors)
        if needed < _LITTLE:
            return False
        free = fw.free_memory(tensors[0])
        return free is not None and free < needed

    @staticmethod
    def _log_sample(step: int, name: str, key: str, number: int, total: int) -> None:
        log.info(said("preheat-sample", step, name, number, total))

    def attempt(self, event: Any, mode: PerturbationMode) -> None:
        """Say that a call is made again, the first time for each name."""
        if not self.rank():
            name = self._entry(event)
            log.once(("free benchmark", name, mode), "info", lambda: said("perturbation-of-call", mode, name))

    def _entry(self, event: Any) -> str:
        """``Torch.matmul.0.backward`` in the backward stage, whatever direction the event is of."""
        return f"{event.key}.{event.number}.{self.settings.stage}"

    def note(self, event: Any, reason: str, level: log.Level = "info") -> None:
        """Why a call is not checked: in the summary, and once for each API in the log."""
        self.results.note(event.key, reason)
        if not self.rank():
            log.once(
                ("free benchmark", event.key, reason),
                level,
                lambda: said("call-not-perturbed", self._entry(event), reason),
            )

    def _write(self, event: Any, mode: PerturbationMode, deviation: ResultDeviation, count: int) -> None:
        fw, difference, own = self.framework, deviation.difference, deviation.own
        is_tensor = fw.is_tensor(own)
        row = DeviationRow(
            mode=mode,
            stage=self.settings.stage,
            step=event.step,
            name=self._entry(event),
            key=event.key,
            max_rel=difference.max_rel,
            dtype=fw.shown_dtype(own) if is_tensor else type(own).__name__,
            shape=fw.shown_shape(own) if is_tensor else "",
            index=deviation.index if count > 1 else None,
            verdict=deviation.verdict,
            mean_rel=difference.mean_rel,
            bad_ratio=difference.bad_ratio,
            condition=deviation.condition,
            source=event.source,
        )
        self.results.add(row, self.rank() or 0, self.settings.lists(mode, deviation.verdict == "risk"))
        if deviation.reason:
            self.results.note(event.key, deviation.reason)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200].rstrip(".")
