"""What is the same for all that can be judged step by step: dumps, and graph files.

Steps are judged when they are asked for, and remembered as far as memory goes.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msprobe import __version__
from msprobe.diagnose.steps.collector import no_collection
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.messages import in_both, said
from msprobe.report.phrases import clean
from msprobe.view.by_hand import changes
from msprobe.view.columns import columns_of, named_rows
from msprobe.view.details import details_of, slots_of, tensors_of
from msprobe.view.grid import grid_of, layers_of
from msprobe.view.judged import JudgedStep
from msprobe.view.matches import Matches
from msprobe.view.places import StepAndRank
from msprobe.view.protocol import (
    FORMAT,
    Culprit,
    CurveAnswer,
    LinesAnswer,
    MatchesAnswer,
    NodeAnswer,
    Overview,
    Partner,
    Picture,
    PlaceAnswer,
    RanksAnswer,
    RunHead,
    TensorAnswer,
    VerdictAnswer,
)
from msprobe.view.remembered import RecentlyUsed
from msprobe.view.rows import BOTH, REFERENCE_ONLY, TreeRow
from msprobe.view.source import NoSuchThingError
from msprobe.view.source_lines import lines_of
from msprobe.view.unchanged import OpenedFiles
from msprobe.view.words import without_name

#: So many records of judged steps stay in memory (300 MB or so); the step that is looked at stays whatever its size.
MOST_RECORDS = 150_000
_WITHOUT_FIRST = ("agree", "clean", "harmless", "incomparable")


class StepsSource(ABC):
    """A :class:`msprobe.view.source.PageSource` whose places are judged one by one."""

    def __init__(
        self,
        places: list[StepAndRank],
        sides: list[RunHead],
        verdict: VerdictAnswer | None,
        files: Sequence[Path],
        has_values: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        """``verdict``: in the words of :mod:`msprobe.view.words`; ``files``: those that must not change, as far as they
        are known now; ``has_values``: tensors were written on both sides.
        """
        self.places = places
        self.is_single = len(sides) == 1
        self._sides = sides
        self._verdict = verdict
        self._findings = verdict["findings"] if verdict is not None else []
        self._files = OpenedFiles(files)
        self._has_values = has_values
        self._notes = list(notes)
        self._steps: RecentlyUsed[JudgedStep] = RecentlyUsed(MOST_RECORDS, lambda step: step.records, JudgedStep.close)
        self._columns: RecentlyUsed[PlaceAnswer] = RecentlyUsed(
            MOST_RECORDS, lambda columns: len(columns["names"]) // 4, lambda columns: None
        )
        self._layers: dict[tuple[int, int], dict[str, int]] = {}
        self._versions: dict[int, int] = {}

    @abstractmethod
    def _judge(self, index: int, place: StepAndRank) -> JudgedStep:
        """Read and judge a place."""

    @abstractmethod
    def _files_of(self, place: StepAndRank) -> list[Path]:
        """The files that a place is read from."""

    @abstractmethod
    def _matches(self, index: int) -> Matches:
        """Where the pairs made by hand of a place are kept."""

    @abstractmethod
    def _status_of(self, place: StepAndRank) -> str:
        """What came of a place, in a word."""

    def _curves(self) -> list[CurveAnswer]:
        """The curves over all steps, as far as they are known."""
        return []

    def _is_curve_complete(self) -> bool:
        return True

    def _partners_of(self, place: StepAndRank, row: TreeRow) -> list[Partner]:
        """The calls of other ranks that a row exchanged data with."""
        return []

    def _known_layers(self, place: StepAndRank, named: Sequence[str | None]) -> dict[str, int] | None:
        """The worst of each layer of a place, where findings name these records of the candidate, and pairs made by
        hand aside; None where it is not known yet.
        """
        return None

    def _layers_now(self, number: int) -> dict[str, int]:
        """The worst of each layer of a place, without judging it where that is not needed."""
        key = (number, self.version(number))
        if key not in self._layers:
            place = self._place(number)
            findings = [finding for finding in self._findings if finding["place"] == number]
            named = [finding["name"] for finding in findings if not finding["harmless"]]
            known = None if self._matches(number).read() else self._known_layers(place, named)
            if known is not None:
                self._files.check(self._files_of(place))
                self._layers[key] = known
            else:
                columns = self._columns_of(number)
                self._layers.setdefault(key, layers_of(columns))
        return self._layers[key]

    def _judge_now(self, index: int, place: StepAndRank) -> JudgedStep:
        self._files.add(self._files_of(place))
        with no_collection():
            return self._judge(index, place)

    def overview(self) -> Overview:
        """What is shown, its places, and the verdict."""
        return {
            "format": FORMAT,
            "product": f"msprobe {__version__}",
            "kind": "single" if self.is_single else "pair",
            "title": _title([side["path"] for side in self._sides]),
            "sides": self._sides,
            "places": [
                {
                    "step": place.step,
                    "rank": without_name(place.rank),
                    "sides": 0 if self.is_single else place.side,
                    "status": self._status_of(place),
                }
                for place in self.places
            ],
            "verdict": self._verdict,
            "curve": self._curves(),
            "curve_complete": self._is_curve_complete(),
            "can": {"picture": self._has_values, "match": not self.is_single},
            "notes": list(map(in_both, self._notes)),
        }

    def place(self, index: int) -> PlaceAnswer:
        """All rows of a place, as columns."""
        return self._columns_of(index)

    def prepare(self) -> None:
        """Judge what the page shows first: the place of the first finding, or the first of all."""
        findings = self._findings
        first = next((finding["place"] for finding in findings if finding["place"] is not None), 0)
        with contextlib.suppress(MsprobeError):  # the page says it where it is asked for
            if self.places:
                self._columns_of(first)

    def node(self, index: int, row: int) -> NodeAnswer:
        """One row in full."""
        columns = self._columns_of(index)
        with self._judged(index) as step:
            if not 0 <= row < len(step.rows):
                raise NoSuchThingError(said("row-not-there", row, len(step.rows)))
            details = details_of(step, step.rows[row], columns, self.is_single)
            details["partners"] = self._partners_of(self._place(index), step.rows[row])
        details["findings"] = [culprit["finding"] for culprit in columns["culprits"] if culprit["row"] == row]
        return details

    def tensors(self, index: int) -> list[tuple[int, TensorAnswer]]:
        """All tensors and arguments of a place, as :meth:`node` gives them, each with the number of its row."""
        with self._judged(index) as step, no_collection():
            return [(row.number, tensor) for row in step.rows for tensor in tensors_of(step, row, self.is_single)]

    def picture(self, index: int, row: int, slot: str) -> Picture:
        """How the values of a tensor differ; needs the values of both sides."""
        from msprobe.view.pictures import picture_of

        self._columns_of(index)
        with self._judged(index) as step:
            if not 0 <= row < len(step.rows):
                raise NoSuchThingError(said("row-not-there", row, len(step.rows)))
            for name, _, left, right in slots_of(step, step.rows[row]):
                if name == slot:
                    return picture_of(*_values(step, left, right))
        raise NoSuchThingError(said("row-without-tensor", clean(slot)))

    def ranks(self, step: int | None) -> RanksAnswer:
        """Layers beside ranks, of all ranks of a step."""
        numbers = [number for number, place in enumerate(self.places) if place.step == step]
        if not numbers:
            raise NoSuchThingError(said("step-not-there", step))
        layers: list[dict[str, int] | None] = []
        for number in numbers:
            try:
                layers.append(self._layers_now(number))
            except InvalidInputError:
                layers.append(None)
        return grid_of([without_name(self.places[number].rank) for number in numbers], numbers, layers)

    def lines(self, index: int) -> LinesAnswer:
        """The source lines of all rows of a place."""
        with self._judged(index) as step:
            return lines_of(step)

    def matches(self, index: int) -> MatchesAnswer:
        """The pairs made by hand."""
        file = self._matches(index)
        return {"pairs": file.read(), "file": str(file.file.absolute())}

    def match(self, index: int, candidate: str, reference: str | None, with_children: bool) -> MatchesAnswer:
        """Pair two rows by hand, or undo that (``reference`` None)."""
        if self.is_single:
            raise InvalidInputError(said("one-run-to-match"))
        file = self._matches(index)
        with self._judged(index) as step:
            if step.pairing is None:
                raise InvalidInputError(said("one-side-to-match"))
            added, removed = changes(step.pairing, candidate, reference, with_children, file.read())
        pairs = file.change(added, removed)
        self._versions[index] = self.version(index) + 1
        self._steps.forget(index)
        self._columns.forget(index)
        return {"pairs": pairs, "file": str(file.file.absolute())}

    def version(self, index: int) -> int:
        """Grows when pairs are made by hand."""
        return self._versions.get(index, 0)

    def wait(self) -> None:  # noqa: B027 (nothing is computed beside, by default)
        """Wait until all that is computed beside is there."""

    def close(self) -> None:
        """Let go of all files."""
        self._steps.close()
        self._columns.close()

    def _place(self, index: int) -> StepAndRank:
        if not 0 <= index < len(self.places):
            raise NoSuchThingError(said("place-not-there", index, len(self.places)))
        return self.places[index]

    @contextmanager
    def _judged(self, index: int) -> Iterator[JudgedStep]:
        place = self._place(index)
        self._files.check(self._files_of(place))
        with self._steps.get(index, lambda: self._judge_now(index, place)) as step:
            yield step

    def _columns_of(self, index: int) -> PlaceAnswer:
        place = self._place(index)
        self._files.check(self._files_of(place))

        def make() -> PlaceAnswer:
            with self._judged(index) as step, no_collection():
                columns = columns_of(step, self.is_single)
            columns["culprits"] = self._culprits(index, columns)
            if self._verdict is not None and not self.is_single:
                columns["named"] = named_rows(columns["culprits"], self._findings)
            # A click would wait for it.
            self._layers[index, self.version(index)] = layers_of(columns)
            if columns["culprits"]:
                columns["first"] = columns["culprits"][0]["row"]
            elif (place.side and not self.is_single) or (self._verdict and self._status_of(place) in _WITHOUT_FIRST):
                # All of it is of one side, or the verdict says that nothing is wrong here.
                columns["first"] = -1
            return columns

        with self._columns.get(index, make) as columns:
            return columns

    def _culprits(self, index: int, columns: PlaceAnswer) -> list[Culprit]:
        wanted = {
            (finding["name"], finding["twin"]): number
            for number, finding in reversed(list(enumerate(self._findings)))
            if finding["place"] == index
        }
        if not wanted:
            return []
        # One name may stand for two rows: a record of each side, that do not answer to each other.
        rows: dict[str, int] = {}
        twins: dict[str | None, int] = {twin: int(row) for row, twin in columns["twins"].items()}
        for row, (own, side) in enumerate(zip(columns["names"], columns["sides"], strict=True)):
            if side != REFERENCE_ONLY:
                rows.setdefault(own, row)
            if side == REFERENCE_ONLY or (side == BOTH and str(row) not in columns["twins"]):
                twins.setdefault(own, row)
        culprits: list[Culprit] = []
        for (name, twin), number in sorted(wanted.items(), key=lambda item: item[1]):
            at = rows.get(name) if name is not None else twins.get(twin)
            if at is not None:
                culprits.append({"row": at, "finding": number})
        return culprits


def _title(paths: Sequence[str]) -> str:
    """As much of the ends of paths as it takes to distinguish them."""
    parts = [Path(path).absolute().parts for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        ends = ["/".join(part[-count:]) for part in parts]
        if len(set(ends)) == len(ends):
            return " - ".join(ends)
    return " - ".join(paths)


def _values(step: JudgedStep, *leaves: Any) -> Sequence[Any]:
    """The values of a tensor on both sides, in their shapes."""
    arrays = []
    for leaf, timeline in zip(leaves, (step.candidate, step.reference), strict=True):
        name = leaf.get("data_name") if isinstance(leaf, dict) else None
        if timeline is None or not isinstance(name, str) or name == "-1":
            raise NoSuchThingError(said("values-not-on-both-sides"))
        array = timeline.part.array(name)
        if array is None:
            raise NoSuchThingError(said("tensor-file-unreadable-here", clean(name)))
        arrays.append(array)
    return arrays
