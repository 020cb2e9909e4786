"""One dump or two as a source of the page. Steps are judged when they are asked for, and remembered as far as memory
goes.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe import __version__
from msprobe.diagnose.findings import Finding, Verdict
from msprobe.diagnose.verdict.common import Rank, Step, in_common
from msprobe.errors import InvalidInputError, MsprobeError
from msprobe.report.phrases import clean
from msprobe.store import layout
from msprobe.store.reader import Dump
from msprobe.view.by_hand import changes
from msprobe.view.columns import columns_of
from msprobe.view.curve import Sizes, as_curves, sizes_of
from msprobe.view.details import details_of, slots_of
from msprobe.view.grid import grid_of, layers_of
from msprobe.view.judged import JudgedStep, judge_pair, read_one
from msprobe.view.matches import SUFFIX, Matches
from msprobe.view.remembered import Remembered
from msprobe.view.rows import BOTH, REFERENCE_ONLY
from msprobe.view.source import Json, NoSuchThingError
from msprobe.view.unchanged import OpenedFiles
from msprobe.view.words import check_in_words, verdict_in_words, without_name

if TYPE_CHECKING:
    from msprobe.compare.mapping import Mappings
    from msprobe.diagnose.check import CheckResult

#: So many records of judged steps stay in memory (2 GB or so); the step that is looked at stays whatever its size.
MOST_RECORDS = 300_000
#: Of longer runs, the curve shows so many steps, evenly spread.
_MOST_CURVE = 300
_FORMAT = 1


@dataclass(frozen=True)
class Place:
    """One step and rank: of the candidate, of the reference, or of both. A rank without number is its folder's name."""

    step: Step
    rank: Rank
    candidate: tuple[Step, Rank] | None
    reference: tuple[Step, Rank] | None

    @property
    def side(self) -> int:
        """0 both, 1 the candidate alone, 2 the reference alone."""
        if self.candidate is None:
            return 2
        return 0 if self.reference is not None else 1


class Dumps:
    """A :class:`msprobe.view.source.Source` of one dump, or of two that are compared."""

    def __init__(
        self,
        candidate: Dump,
        reference: Dump | None,
        told: Verdict | CheckResult | None,
        mappings: Mappings | None = None,
        matches_folder: Path | None = None,
    ) -> None:
        self._dumps = candidate, reference
        self._told = told
        self._mappings = mappings
        self._folder = matches_folder or Path.cwd()
        self.places = places_of(candidate, reference)
        self._numbers: dict[tuple[Step, Rank], int] = {}
        for number, place in enumerate(self.places):
            self._numbers.setdefault((place.step, place.rank), number)
        self._files = OpenedFiles(path for place in self.places for path in self._main_files(place))
        self._steps: Remembered[JudgedStep] = Remembered(MOST_RECORDS, lambda one: one.records, JudgedStep.close)
        self._columns: Remembered[Json] = Remembered(
            MOST_RECORDS, lambda columns: len(columns["names"]) // 4, lambda columns: None
        )
        self._layers: dict[tuple[int, int], dict[str, int]] = {}
        self._versions: dict[int, int] = {}
        self._words = self._in_words()
        self._sides = [
            self._side(dump, label)
            for dump, label in zip(self._dumps, ("candidate", "reference"), strict=True)
            if dump is not None
        ]
        self._curves: list[Json] = []
        self._is_closed = threading.Event()
        self._curve = threading.Thread(target=self._read_curve, name="msprobe-curve", daemon=True)
        self._curve.start()

    @property
    def is_single(self) -> bool:
        """True for one run alone."""
        return self._dumps[1] is None

    def overview(self) -> Json:
        """What is shown, its places, and the verdict."""
        return {
            "format": _FORMAT,
            "product": f"msprobe {__version__}",
            "kind": "single" if self.is_single else "pair",
            "title": _title([side["path"] for side in self._sides]),
            "sides": self._sides,
            "places": [
                {
                    "step": one.step,
                    "rank": without_name(one.rank),
                    "sides": 0 if self.is_single else one.side,
                    "status": self._status_of(one),
                }
                for one in self.places
            ],
            "verdict": self._words,
            "curve": list(self._curves),
            "curve_complete": not self._curve.is_alive(),
            "can": {"picture": self._has_values(), "match": not self.is_single},
            "notes": self._notes(),
        }

    def place(self, index: int) -> Json:
        """All rows of a place, as columns."""
        return self._columns_of(index)

    def node(self, index: int, row: int) -> Json:
        """One row in full."""
        columns = self._columns_of(index)
        with self._judged(index) as step:
            if not 0 <= row < len(step.rows):
                raise NoSuchThingError(f"there is no row {row}; this place has {len(step.rows)}.")
            found = details_of(step, step.rows[row], columns, self.is_single)
        found["findings"] = [one["finding"] for one in columns["culprits"] if one["row"] == row]
        return found

    def picture(self, index: int, row: int, slot: str) -> Json:
        """How the values of a tensor differ; needs the values of both sides."""
        from msprobe.view.pictures import picture_of

        self._columns_of(index)
        with self._judged(index) as step:
            if not 0 <= row < len(step.rows):
                raise NoSuchThingError(f"there is no row {row}; this place has {len(step.rows)}.")
            for name, _, left, right in slots_of(step, step.rows[row]):
                if name == slot:
                    return picture_of(*_values(step, left, right))
        raise NoSuchThingError(f"this row has no tensor {clean(slot)!r}.")

    def ranks(self, step: int | None) -> Json:
        """Layers beside ranks, of all ranks of a step."""
        numbers = [number for number, place in enumerate(self.places) if place.step == step]
        if not numbers:
            raise NoSuchThingError(f"there is no step {step}.")
        found: list[dict[str, int] | None] = []
        for number in numbers:
            key = (number, self.version(number))
            if key not in self._layers:
                try:
                    self._layers[key] = layers_of(self._columns_of(number))
                except InvalidInputError:
                    found.append(None)
                    continue
            found.append(self._layers[key])
        return {**grid_of([without_name(self.places[number].rank) for number in numbers], found), "places": numbers}

    def matches(self, index: int) -> Json:
        """The pairs made by hand."""
        file = self._matches(index)
        return {"pairs": file.read(), "file": str(file.file)}

    def match(self, index: int, candidate: str, reference: str | None, with_children: bool) -> Json:
        """Pair two rows by hand, or undo that (``reference`` None)."""
        if self.is_single:
            raise InvalidInputError("there is one run alone: nothing to match.")
        file = self._matches(index)
        with self._judged(index) as step:
            if step.pairing is None:
                raise InvalidInputError("only one run has this step and rank: nothing to match.")
            added, removed = changes(step.pairing, candidate, reference, with_children, file.read())
        pairs = file.change(added, removed)
        self._versions[index] = self.version(index) + 1
        self._steps.forget(index)
        self._columns.forget(index)
        return {"pairs": pairs, "file": str(file.file)}

    def version(self, index: int) -> int:
        """Grows when pairs are made by hand."""
        return self._versions.get(index, 0)

    def wait(self) -> None:
        """Wait for the curve."""
        self._curve.join()

    def close(self) -> None:
        """Let go of all files."""
        self._is_closed.set()
        self._curve.join()
        self._steps.close()
        self._columns.close()

    def _place(self, index: int) -> Place:
        if not 0 <= index < len(self.places):
            raise NoSuchThingError(f"there is no place {index}; there are {len(self.places)}.")
        return self.places[index]

    @contextmanager
    def _judged(self, index: int) -> Iterator[JudgedStep]:
        place = self._place(index)
        self._files.check(self._all_files(place))
        with self._steps.get(index, lambda: self._judge(index, place)) as step:
            yield step

    def _judge(self, index: int, place: Place) -> JudgedStep:
        candidate, reference = self._dumps
        self._files.add(self._all_files(place))
        if place.candidate is None:
            assert reference is not None
            assert place.reference is not None
            return read_one(reference.only(*place.reference), is_reference=True)
        one = candidate.only(*place.candidate)
        if place.reference is None or reference is None:
            return read_one(one)
        follows = place.candidate[0] != candidate.steps[0]
        pairs = self._matches(index).read()
        return judge_pair(one, reference.only(*place.reference), self._mappings, follows, pairs)

    def _columns_of(self, index: int) -> Json:
        place = self._place(index)
        self._files.check(self._all_files(place))

        def make() -> Json:
            with self._judged(index) as step:
                columns = columns_of(step, self.is_single)
            columns["culprits"] = self._culprits(index, columns)
            if columns["culprits"]:
                columns["first"] = columns["culprits"][0]["row"]
            return columns

        with self._columns.get(index, make) as columns:
            return columns

    def _culprits(self, index: int, columns: Json) -> list[Json]:
        if self._words is None:
            return []
        wanted = {
            (finding["name"], finding["twin"]): number
            for number, finding in reversed(list(enumerate(self._words["findings"])))
            if finding["place"] == index
        }
        if not wanted:
            return []
        # One name may stand for two rows: a record of each side, that do not answer to each other.
        rows: dict[str, int] = {}
        twins = {twin: int(row) for row, twin in columns["twins"].items()}
        for row, (name, side) in enumerate(zip(columns["names"], columns["sides"], strict=True)):
            if side != REFERENCE_ONLY:
                rows.setdefault(name, row)
            if side == REFERENCE_ONLY or (side == BOTH and str(row) not in columns["twins"]):
                twins.setdefault(name, row)
        found = []
        for (name, twin), number in sorted(wanted.items(), key=lambda item: item[1]):
            at = rows.get(name) if name is not None else twins.get(twin)
            if at is not None:
                found.append({"row": at, "finding": number})
        return found

    def _in_words(self) -> Json | None:
        if isinstance(self._told, Verdict):
            return verdict_in_words(self._told, self._place_of)
        return check_in_words(self._told, self._place_of) if self._told is not None else None

    def _place_of(self, finding: Finding) -> int | None:
        if finding.rank is not None:
            return self._numbers.get((finding.step, finding.rank))
        return next((number for number, place in enumerate(self.places) if place.step == finding.step), None)

    def _status_of(self, place: Place) -> str:
        told = self._told
        if place.side and not self.is_single:
            return "candidate_only" if place.side == 1 else "reference_only"
        if told is None:
            return "not_compared"
        if any(one.step == place.step and one.rank in (place.rank, None) and not one.harmless for one in told.findings):
            return "diverged" if isinstance(told, Verdict) else "found"
        if not isinstance(told, Verdict):
            return "clean"
        if told.status == "incomparable":
            return "not_compared"
        last = max((self._order(one) for one in told.apart), default=None) if told.status == "diverged" else None
        if last is not None and self._order(place.step) > last:
            return "not_compared"
        return "harmless" if place.step in told.apart else "agree"

    @staticmethod
    def _order(step: Step) -> int:
        return -1 if step is None else step

    def _main_files(self, place: Place) -> list[Path]:
        """The files whose state is known from the beginning."""
        found = []
        for dump, where in zip(self._dumps, (place.candidate, place.reference), strict=True):
            if dump is not None and where is not None:
                folder = dump.folder(*where)
                found += [folder / layout.DUMP_FILE, folder / layout.DEBUG_FILE]
        return found

    def _all_files(self, place: Place) -> list[Path]:
        main = self._main_files(place)
        folders = dict.fromkeys(path.parent for path in main)
        return [*main, *(folder / name for folder in folders for name in (layout.STACK_FILE, layout.CONSTRUCT_FILE))]

    def _matches(self, index: int) -> Matches:
        place = self._place(index)
        paths = [str(dump.path.absolute()) for dump in self._dumps if dump is not None]
        mark = hashlib.sha256("\0".join(paths).encode("utf-8", "surrogateescape")).hexdigest()[:8]
        where = "_".join(str(part) for part in (place.step, place.rank) if part is not None)
        return Matches(self._folder / f"msprobe_view_{mark}_{where}{SUFFIX}")

    def _side(self, dump: Dump, label: str) -> Json:
        header: dict[str, Any] = {}
        is_interrupted = False
        first = next((place for place in self.places), None)
        where = (first.candidate if label == "candidate" else first.reference) if first is not None else None
        where = where or next(((step, rank) for step in dump.steps for rank in dump.ranks(step)), None)
        if where is not None:
            try:
                part = dump.part(*where)
                header, is_interrupted = part.header, not part.complete
                part.close()
            except MsprobeError:
                header = {}
        told = {key: header.get(key) for key in ("framework", "level", "task")}
        return {
            "label": label if not self.is_single else "run",
            "path": clean(dump.path),
            **{key: clean(value) if isinstance(value, str) else None for key, value in told.items()},
            "interrupted": is_interrupted,
        }

    def _has_values(self) -> bool:
        return not self.is_single and all(side["task"] == "tensor" for side in self._sides)

    def _notes(self) -> list[str]:
        sides = {place.side for place in self.places}
        if not self.is_single and 0 not in sides:
            return ["no step and rank of one run answers to one of the other: each is shown by itself"]
        return []

    def _read_curve(self) -> None:
        shown: dict[Step, Place] = {}
        for place in self.places:
            if place.side == 0 or self.is_single:
                shown.setdefault(place.step, place)
        steps = list(shown)[:: max(1, len(shown) // _MOST_CURVE)]
        candidate, reference = self._dumps
        ours: list[Sizes] = []
        theirs: list[Sizes] = []
        for number, step in enumerate(steps, 1):
            if self._is_closed.is_set():
                return
            place = shown[step]
            if place.candidate is not None:
                ours.append(sizes_of(candidate, *place.candidate))
            if reference is not None and place.reference is not None:
                theirs.append(sizes_of(reference, *place.reference))
            self._curves = as_curves(steps[:number], ours, theirs)


def places_of(candidate: Dump, reference: Dump | None) -> list[Place]:
    """All steps and ranks in order: those that both have, and those of one side alone."""
    if reference is None:
        return [Place(step, rank, (step, rank), None) for step in candidate.steps for rank in candidate.ranks(step)]
    found: list[Place] = []
    taken: tuple[set[tuple[Step, Rank]], set[tuple[Step, Rank]]] = (set(), set())
    for step in in_common(candidate, reference).steps:
        for rank, twin in step.ranks:
            found.append(Place(step.candidate, rank, (step.candidate, rank), (step.reference, twin)))
            taken[0].add((step.candidate, rank))
            taken[1].add((step.reference, twin))
    for side, dump in enumerate((candidate, reference)):
        for at in dump.steps:
            for rank in dump.ranks(at):
                if (at, rank) not in taken[side]:
                    where = (at, rank)
                    found.append(Place(at, rank, where if side == 0 else None, where if side else None))
    return sorted(found, key=_place_order)


def _title(paths: Sequence[str]) -> str:
    """As much of the ends of paths as it takes to tell them apart."""
    parts = [Path(path).absolute().parts for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        ends = ["/".join(one[-count:]) for one in parts]
        if len(set(ends)) == len(ends):
            return " - ".join(ends)
    return " - ".join(paths)


def _place_order(place: Place) -> tuple[Any, ...]:
    rank = (0, place.rank, "") if isinstance(place.rank, int) else (1, 0, place.rank)
    return (-1 if place.step is None else place.step, *rank, place.side)


def _values(step: JudgedStep, *leaves: Any) -> Sequence[Any]:
    """The values of a tensor on both sides, in their shapes."""
    found = []
    for leaf, timeline in zip(leaves, (step.candidate, step.reference), strict=True):
        name = leaf.get("data_name") if isinstance(leaf, dict) else None
        if timeline is None or not isinstance(name, str) or name == "-1":
            raise NoSuchThingError('the values were not recorded on both sides: record with "task": "tensor".')
        array = timeline.part.array(name)
        if array is None:
            raise NoSuchThingError(f"the file {clean(name)} cannot be read: it is missing or broken.")
        found.append(array)
    return found
