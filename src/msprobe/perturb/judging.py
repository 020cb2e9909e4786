"""Whether rounding in a call's own type explains what differs between it and its second run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from msprobe.config.settings import PerturbationMode
from msprobe.guard import pass_on
from msprobe.messages import said
from msprobe.perturb.framework import ErrorLimits, Framework, Invocation, Reactions
from msprobe.perturb.results import EXPLAINED, Verdict
from msprobe.perturb.second_runs import Second, SecondRuns, expected
from msprobe.perturb.thresholds import unit_of

# Makes a call, forward or backward: its results, None for one that is not there.
Run = Callable[[Invocation, bool], Sequence[Any]]
# Of results with few elements a single run with rounded inputs may differ little by chance.
_FEW, _DRAWS = 64, 4


class Judge:
    """Whether the call's own rounding explains what differs. Runs the call again only when it is asked."""

    def __init__(
        self,
        framework: Framework,
        seconds: SecondRuns,
        mode: PerturbationMode,
        call: Invocation,
        second: Second,
        run: Run,
    ) -> None:
        self.is_backward = seconds.settings.stage == "backward"
        self.framework = framework
        self.seconds = seconds
        self.mode = mode
        self.call = call
        self.second = second
        self.run = run
        self._known: dict[tuple[str, float, int], tuple[Sequence[Any], list[Sequence[Any]]]] = {}

    def verdict(self, index: int, own: Any, other: Any, limits: ErrorLimits) -> tuple[Verdict, str]:
        """Whether it does, and why that is not known, or what shows that it does not. What is made again without a
        change has nothing to explain.
        """
        fw = self.framework
        if self.mode == "no_change":
            return "risk", ""
        if not fw.is_float(own):
            # Which of two nearly equal elements is the greater one: the values are compared, too.
            return EXPLAINED, ""
        unit = self._unit(own)
        try:
            reactions = _result_reactions(index, *self._runs(fw.dtype(own), unit, own), unit)
            if not fw.is_explained(own, other, limits, reactions):
                return "risk", ""
            # Where inputs were changed, results go the way of the change.
            direction = "" if self._is_changed() else fw.goes_one_way(own, reactions)
            return ("risk", direction) if direction else (EXPLAINED, "")
        except Exception as error:
            pass_on(error)
            reason = said("no-wider-type", type(error).__name__)
        # What rounded inputs do to the rounded result can acquit it, and not convict: where the call jumps, noise may
        # meet an edge that the few draws do not.
        with contextlib.suppress(Exception):
            reactions = _result_reactions(index, *self._own_runs(unit, own), unit)
            # Of a NaN in its own result the run as it is says nothing: it has the same one.
            is_mismatch = fw.compare(own, other, limits).word == "nan_mismatch"
            if not is_mismatch and fw.is_explained(own, other, limits, reactions):
                return EXPLAINED, ""
        return "not judged", reason

    def _is_changed(self) -> bool:
        return self.second.changed is not None or self.second.exchange is not None

    def _unit(self, own: Any) -> float:
        """What one rounding changes. Gradients of weights in float32 are computed in the type of autocast."""
        precision = self.framework.precision(self.call.context) if self.is_backward else ""
        return max(self.framework.unit(own), unit_of(precision) if precision else 0.0)

    def _runs(self, dtype: str, unit: float, own: Any) -> tuple[Sequence[Any], list[Sequence[Any]]]:
        draws = self._draws(own)
        place = (dtype, unit, draws)
        if place not in self._known:
            seconds = self.seconds
            noisy = self.second.changed is not None
            base_call = seconds.widened(self.call if noisy else self.second.call, dtype)
            base = self.run(base_call, True)
            shifted = [self.run(seconds.rounded(base_call, unit, seed), True) for seed in range(draws)]
            if noisy:
                shifted.append(self.run(seconds.widened(self.second.call, dtype), True))
            self._known[place] = self._all_as_expected(base), [self._all_as_expected(results) for results in shifted]
        return self._known[place]

    def _own_runs(self, unit: float, own: Any) -> tuple[Sequence[Any], list[Sequence[Any]]]:
        """Runs in the call's own types: as it is, and with inputs that are moved by a rounding each. Gradients, which
        are cast to the type of the result, by twice as much, as they would come to be the same again.
        """
        draws = self._draws(own)
        place = ("", unit, draws)
        if place not in self._known:
            seconds = self.seconds
            call = self.second.call if self.mode == "change_value" else self.call
            base = self.run(seconds.prepare("no_change", "", call).call, False)
            shifted = [self.run(seconds.moved(call, 2 * unit, seed), False) for seed in range(draws)]
            self._known[place] = self._all_as_expected(base), [self._all_as_expected(results) for results in shifted]
        return self._known[place]

    def _draws(self, own: Any) -> int:
        return 1 if self.framework.nbytes(own) > _FEW * 8 else _DRAWS

    def _all_as_expected(self, results: Sequence[Any]) -> Sequence[Any]:
        return results if self.second.exchange is None else [self._as_expected(result) for result in results]

    def _as_expected(self, result: Any) -> Any:
        exchange = self.second.exchange
        if exchange is not None and exchange.result == "last" and self.framework.is_tensor(result):
            return expected(self.framework, exchange, result)
        return result


def _result_reactions(index: int, base: Sequence[Any], shifted: Sequence[Sequence[Any]], unit: float) -> Reactions:
    if base[index] is None:
        raise ValueError(said("no-such-result-then"))
    return Reactions(base[index], [results[index] for results in shifted], unit)
