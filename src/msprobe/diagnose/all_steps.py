"""The steps of two runs in order, the ranks of each side by side; each is judged once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msprobe.diagnose.effect.leftover import Left
from msprobe.diagnose.effect.reach import Reach
from msprobe.diagnose.one_step import Keep, StepTask, judge
from msprobe.diagnose.verdict.common import Rank, Step, StepPair
from msprobe.diagnose.verdict.conclusion import ComparedRank
from msprobe.diagnose.verdict.exchanges import settle_exchanges
from msprobe.diagnose.verdict.gradients_in_parts import settle_parts
from msprobe.diagnose.verdict.gradients_over_ranks import settle_gradients
from msprobe.diagnose.verdict.many_ranks import with_first_suspects
from msprobe.engine import Workers, run
from msprobe.messages import joined, said
from msprobe.store.reader import Dump

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings

Progress = Callable[[str], None]
Place = tuple[Step, Rank]


class PlaceOfWork:
    """Says which part is compared, where somebody wants to know."""

    def __init__(self, progress: Progress | None, parts: int) -> None:
        self._progress = progress
        self._parts = parts
        self._before = 0

    def __call__(self, step: StepPair, number: int) -> None:
        """Say that the work is at the rank of this number in this step."""
        if self._progress is not None:
            rank = step.ranks[number][0]
            words = [said("step", step.candidate)] if step.candidate is not None else []
            words += [said("rank", rank)] if isinstance(rank, int) else []
            count = self._before + number + 1, self._parts
            what = joined(", ", words)
            self._progress(said("job-of-jobs", what, *count) if words else said("count-of-total", *count))

    def all_ranks(self, step: StepPair) -> None:
        """Say that the work is at a step in which ranks do not answer to each other."""
        if self._progress is not None:
            self._progress(said("ranks-all") if step.candidate is None else said("step-all-ranks", step.candidate))

    def done(self, step: StepPair) -> None:
        """All ranks of a step are done."""
        self._before += len(step.ranks)


class Steps:
    """Judges one step after the other, the ranks of each side by side; a step knows what the one before left.

    Nothing is kept of a step but what the next needs. Where a step is judged by what the next shows, that is kept until
    its turn comes, so that every step is judged once.
    """

    def __init__(
        self,
        first: Dump,
        other: Dump,
        healthy: dict[Place, Dump],
        place: PlaceOfWork,
        workers: Workers,
        mappings: Mappings | None,
        keep: Keep | None = None,
    ) -> None:
        self._dumps = first, other
        self._steps = len(first.steps), len(other.steps)
        self._healthy = healthy
        self._place = place
        self._workers = workers
        self._mappings = mappings
        # What another process knows cannot be kept here.
        self._keep = keep if workers.alone else None
        self._first = True
        self._reached: dict[Rank, Reach] = {}
        self._left: dict[Rank, tuple[Mapping[str, Left], Mapping[str, Left]]] = {}
        self._weights: dict[Rank, Mapping[str, tuple[Any, Any]]] = {}
        self._ahead: tuple[StepPair, list[ComparedRank]] | None = None

    def compare(self, step: StepPair) -> list[ComparedRank]:
        """All ranks of a step, which follows the one that was compared before."""
        results = self._judged(step)
        self._ahead = None
        self._place.done(step)
        self._reached = {result.rank: result.reach for result in results}
        self._left = {result.rank: result.left for result in results}
        self._weights = {result.rank: result.weights for result in results}
        self._first = False
        return results

    def reach_in(self, step: StepPair | None) -> float:
        """How far differences reach in the step that follows: its weights, or all of it where these are not known."""
        if step is None:
            return 0.0
        results = self._judged(step)
        self._ahead = step, results
        return max((_brought(result.reach) for result in results), default=0.0)

    def _judged(self, step: StepPair) -> list[ComparedRank]:
        """What came out for a step, which was judged already if the one before asked for it."""
        if self._ahead is not None and self._ahead[0] is step:
            return self._ahead[1]
        results = run(judge, self._tasks(step), self._workers, partial(self._place, step))
        return settle_parts(settle_gradients(settle_exchanges(with_first_suspects(results))))

    def _tasks(self, step: StepPair) -> list[StepTask]:
        first, other = self._dumps
        return [
            StepTask(
                first.only(step.candidate, rank),
                other.only(step.reference, twin),
                self._healthy.get((step.reference, twin)),
                self._first and step.candidate in (None, 0),
                self._reached.get(rank, Reach()),
                self._left.get(rank, ({}, {})),
                self._weights.get(rank, {}),
                self._mappings,
                self._steps,
                self._keep,
            )
            for rank, twin in step.ranks
        ]


def _brought(reach: Reach) -> float:
    return reach.size if reach.at_start is None else reach.at_start
