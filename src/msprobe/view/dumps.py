"""One dump or two as a source of the page."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.diagnose.findings import Finding, Verdict
from msprobe.diagnose.runs import healthy_parts
from msprobe.diagnose.verdict.common import Rank, Step
from msprobe.errors import MsprobeError
from msprobe.report.phrases import clean
from msprobe.store import layout
from msprobe.store.reader import Dump
from msprobe.view.curve import Sizes, as_curves, sizes_of
from msprobe.view.judged import JudgedStep, judge_pair, read_one
from msprobe.view.kept import KeptSteps
from msprobe.view.matches import SUFFIX, Matches
from msprobe.view.partners import Exchanges
from msprobe.view.places import StepAndRank, places_of
from msprobe.view.protocol import CurveAnswer, Partner, RunHead, VerdictAnswer
from msprobe.view.rows import TreeRow
from msprobe.view.steps_source import StepsSource
from msprobe.view.words import check_in_words, verdict_in_words

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings
    from msprobe.diagnose.check import CheckResult
    from msprobe.paths import StrPath

#: Of longer runs, the curve shows so many steps, evenly spread.
_MOST_CURVE = 300
_ALONE = "the runs have no step and rank in common: each is shown by itself"


class Dumps(StepsSource):
    """One dump, or two that are compared."""

    def __init__(
        self,
        candidate: Dump,
        reference: Dump | None,
        answer: Verdict | CheckResult | None,
        mappings: Mappings | None = None,
        matches_folder: Path | None = None,
        kept: KeptSteps | None = None,
        noise: StrPath | None = None,
    ) -> None:
        """``reported``: what a comparison or a check says of them; ``noise``: the second healthy run that it was made
        with. Raises PathError or InvalidInputError if that cannot be read.
        """
        self._dumps = candidate, reference
        self._answer = answer
        self._exchanges = [Exchanges(dump) if dump is not None else None for dump in self._dumps]
        self._mappings = mappings
        self._folder = matches_folder or Path.cwd()
        self._kept = kept
        self._healthy = healthy_parts(noise, reference) if noise is not None and reference is not None else {}
        in_layouts = isinstance(answer, Verdict) and "layouts" in answer.summary
        self.places = places = places_of(candidate, reference, not in_layouts)
        self._first_common = next((place.candidate[0] for place in places if place.side == 0 and place.candidate), None)
        self._numbers: dict[tuple[Step, Rank], int] = {}
        for number, place in enumerate(places):
            self._numbers.setdefault((place.step, place.rank), number)
        #: What a comparison said of all steps, and of which steps and ranks something was found.
        self._last_apart: int | None = None
        self._apart: frozenset[Step] = frozenset()
        self._not_compared: frozenset[Step] = frozenset()
        if isinstance(answer, Verdict):
            self._apart, self._not_compared = frozenset(answer.apart), frozenset(answer.not_compared)
            if answer.status == "diverged":
                self._last_apart = max(map(self._order, answer.apart), default=None)
        self._named = {
            (finding.step, finding.rank) for finding in (answer.findings if answer else ()) if not finding.harmless
        }
        sides = [_side(candidate, "run" if reference is None else "candidate", places)]
        if reference is not None:
            sides.append(_side(reference, "reference", places))
        alone = reference is not None and all(place.side for place in places)
        super().__init__(
            places,
            sides,
            self._in_words(),
            [path for place in places for path in self._main_files(place)],
            has_values=reference is not None and all(side["task"] == "tensor" for side in sides),
            notes=[_ALONE] if alone else [],
        )
        self._read: list[CurveAnswer] = []
        self._is_closed = threading.Event()
        self._curve = threading.Thread(target=self._read_curve, name="msprobe-curve", daemon=True)
        self._curve.start()

    def wait(self) -> None:
        """Wait for the curve."""
        self._curve.join()

    def close(self) -> None:
        """Let go of all files."""
        self._is_closed.set()
        self._curve.join()
        if self._kept is not None:
            self._kept.close()
        super().close()

    def _partners_of(self, place: StepAndRank, row: TreeRow) -> list[Partner]:
        exchanges = self._exchanges[1 if row.candidate is None else 0]
        where = place.reference if row.candidate is None else place.candidate
        if exchanges is None or where is None or row.event is None:
            return []
        return [
            {
                "rank": rank,
                "place": self._numbers.get((place.step, rank)),
                "side": 2 if row.candidate is None else 0,
                "name": name,
                "direction": direction,
            }
            for rank, name, direction in exchanges.of(*where, row.event.name)
        ]

    def _curves(self) -> list[CurveAnswer]:
        return list(self._read)

    def _is_curve_complete(self) -> bool:
        return not self._curve.is_alive()

    def _judge(self, index: int, place: StepAndRank) -> JudgedStep:
        candidate, reference = self._dumps
        if place.candidate is None:
            assert reference is not None
            assert place.reference is not None
            return read_one(reference.only(*place.reference), is_reference=True)
        candidate_part = candidate.only(*place.candidate)
        if place.reference is None or reference is None:
            return read_one(candidate_part)
        pairs = self._matches(index).read()
        known = self._kept.take(place.candidate) if self._kept is not None else None
        if known is not None and not pairs:
            return known
        if known is not None:
            known.close()
        return judge_pair(
            candidate_part,
            reference.only(*place.reference),
            self._mappings,
            follows=place.candidate[0] != self._first_common,
            by_hand=pairs,
            healthy=self._healthy.get(place.reference),
        )

    def _known_layers(self, place: StepAndRank, named: Sequence[str | None]) -> dict[str, int] | None:
        if self._kept is None or place.candidate is None or place.reference is None:
            return None
        return self._kept.layers(place.candidate, named)

    def _in_words(self) -> VerdictAnswer | None:
        if isinstance(self._answer, Verdict):
            return verdict_in_words(self._answer, self._place_of)
        return check_in_words(self._answer, self._place_of) if self._answer is not None else None

    def _place_of(self, finding: Finding) -> int | None:
        if finding.rank is not None:
            return self._numbers.get((finding.step, finding.rank))
        return next((number for number, place in enumerate(self.places) if place.step == finding.step), None)

    def _status_of(self, place: StepAndRank) -> str:
        answer = self._answer
        if place.side and not self.is_single:
            return "candidate_only" if place.side == 1 else "reference_only"
        if answer is None:
            return "not_compared"
        if (place.step, place.rank) in self._named or (place.step, None) in self._named:
            return "diverged" if isinstance(answer, Verdict) else "found"
        if not isinstance(answer, Verdict):
            return "clean"
        if answer.status == "incomparable" or place.step in self._not_compared:
            return "incomparable"
        if self._last_apart is not None and self._order(place.step) > self._last_apart:
            return "not_compared"
        return "harmless" if place.step in self._apart and answer.status != "agree" else "agree"

    @staticmethod
    def _order(step: Step) -> int:
        return -1 if step is None else step

    def _main_files(self, place: StepAndRank) -> list[Path]:
        """The files whose state is known from the beginning."""
        paths = []
        for dump, where in zip(self._dumps, (place.candidate, place.reference), strict=True):
            if dump is not None and where is not None:
                folder = dump.folder(*where)
                paths += [folder / name for name in layout.MAIN_FILES]
        return paths

    def _files_of(self, place: StepAndRank) -> list[Path]:
        main = self._main_files(place)
        folders = dict.fromkeys(path.parent for path in main)
        return [*main, *(folder / name for folder in folders for name in (layout.STACK_FILE, layout.CONSTRUCT_FILE))]

    def _matches(self, index: int) -> Matches:
        place = self._place(index)
        paths = [str(dump.path.absolute()) for dump in self._dumps if dump is not None]
        mark = hashlib.sha256("\0".join(paths).encode("utf-8", "surrogateescape")).hexdigest()[:8]
        where = "_".join(str(part) for part in (place.step, place.rank) if part is not None)
        return Matches(self._folder / f"msprobe_view_{mark}_{where}{SUFFIX}")

    def _read_curve(self) -> None:
        shown: dict[Step, StepAndRank] = {}
        for place in self.places:
            if place.side == 0 or self.is_single:
                shown.setdefault(place.step, place)
        steps = list(shown)[:: max(1, len(shown) // _MOST_CURVE)]
        candidate, reference = self._dumps
        ours: list[Sizes] = []
        theirs: list[Sizes] = []
        answer = (
            self._answer.summary if isinstance(self._answer, Verdict) and self._answer.status != "incomparable" else {}
        )
        rounding = answer.get("rounding_tolerance")
        for number, step in enumerate(steps, 1):
            if self._is_closed.is_set():
                return
            place = shown[step]
            if place.candidate is not None:
                ours.append(sizes_of(candidate, *place.candidate))
            if reference is not None and place.reference is not None:
                theirs.append(sizes_of(reference, *place.reference))
            self._read = as_curves(steps[:number], ours, theirs, rounding)


def _is_cut(dump: Dump, *place: Any) -> bool:
    """True if what was recorded there ends early; what cannot be read says so elsewhere."""
    try:
        part = dump.part(*place)
    except MsprobeError:
        return True
    is_complete = part.complete
    part.close()
    return not is_complete


def _side(dump: Dump, label: str, places: list[StepAndRank]) -> RunHead:
    """What the overview says of one run, by the first of its parts that can be read."""
    header: dict[str, Any] = {}
    is_interrupted = False
    folder_keys = [place.reference if label == "reference" else place.candidate for place in places]
    where = next((folder_key for folder_key in folder_keys if folder_key is not None), None)
    if where is not None:
        try:
            part = dump.part(*where)
            header, is_interrupted = part.header, not part.complete
            part.close()
        except MsprobeError:
            header = {}
    # A process that was killed leaves the journal of the step that it was in, which is seldom the first. One that is
    # done with a step takes its journal away a moment later.
    is_interrupted |= any(
        layout.journals(dump.folder(*folder_key)) and _is_cut(dump, *folder_key)
        for folder_key in folder_keys
        if folder_key is not None
    )

    def written(key: str) -> str | None:
        value = header.get(key)
        return clean(value) if isinstance(value, str) else None

    return {
        "label": label,
        "path": clean(dump.path),
        "framework": written("framework"),
        "level": written("level"),
        "task": written("task"),
        "interrupted": is_interrupted,
    }
