"""What the server of the page answers: declared here alone, for mypy, which checks those who make it, and for the page.

``python tests/protocol_types.py`` writes ``web/source/data/protocol.ts`` from this file, comments and all, and a test
holds answers of real runs against it. What the page asks stands in ``web/protocol.md``.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from msprobe.coverage import CoverageJson
from msprobe.messages.languages import Said

#: Grows when an answer is no longer what an older page can read; the page refuses another one.
FORMAT = 1

#: A number of a record; what JSON has no number for comes as a word.
Figure = float | Literal["nan", "inf", "-inf"] | None
#: A difference without size (NaN or Inf on one side, another number of elements) is 1e300.
Difference = float | None
Statistic = Literal["max", "min", "mean", "norm"]
Group = Literal["input", "parameter", "output"]
Direction = Literal["send", "receive", "both"]
#: 0 both, 1 candidate only, 2 reference only; of a single run 0.
Whose = Literal[0, 1, 2]
#: A rank without number is the name of its folder; null: the only one.
Rank = int | str | None


class RunHead(TypedDict):
    """A run; of a single one ``label`` is "run"."""

    label: str
    path: str
    framework: str | None
    level: str | None
    task: str | None
    interrupted: bool


class PlaceHead(TypedDict):
    """One step of one rank; its index is its number in ``places``, which are in numeric order."""

    step: int | None
    rank: Rank
    sides: Whose
    #: "agree", "diverged", "incomparable", "not_compared", "harmless", "candidate_only", "reference_only"; of a single
    #: run "clean" or "found".
    status: str


class FieldBlock(TypedDict):
    """``name`` is empty where a field goes on with the one before."""

    type: Literal["field"]
    name: Said
    text: Said
    code: str


class TableBlock(TypedDict):
    """Rows of label, candidate and reference."""

    type: Literal["table"]
    rows: list[tuple[Said, Said, Said]]


class TextBlock(TypedDict):
    """A sentence."""

    type: Literal["text"]
    text: Said


Block = FieldBlock | TableBlock | TextBlock


class FindingAnswer(TypedDict):
    """A finding that is about a record of the reference alone has ``twin`` and no ``name``."""

    title: Said
    blocks: list[Block]
    kind: str
    harmless: bool
    name: str | None
    twin: str | None
    step: int | None
    rank: Rank
    place: int | None
    reason: Said
    source: list[str]


class VerdictAnswer(TypedDict):
    """The English words are those of the command line."""

    status: str
    headline: Said
    exit_code: int
    coverage: CoverageJson
    notes: list[Said]
    compared: list[Said]
    findings: list[FindingAnswer]


class CurveAnswer(TypedDict):
    """A size over all steps; ``difference`` and ``allowed`` are relative, and empty of a single run."""

    name: str
    steps: list[int]
    candidate: list[Figure]
    reference: list[Figure]
    difference: list[Difference]
    allowed: list[float | None]


class Can(TypedDict):
    """What may be asked for, beside what is there."""

    picture: bool
    match: bool


class Overview(TypedDict):
    """``/api/overview``."""

    format: int
    product: str
    kind: Literal["pair", "single"]
    title: str
    #: The candidate, or the only run; then the reference.
    sides: list[RunHead]
    places: list[PlaceHead]
    verdict: VerdictAnswer | None
    curve: list[CurveAnswer]
    #: False while the server still reads steps: ask again a second later.
    curve_complete: bool
    can: Can
    notes: list[Said]


class Outline(TypedDict):
    """Columns, one entry a row. A parent stands before its children, siblings in order of execution, rows of one side
    in place, so that a subtree is a contiguous block.
    """

    #: The candidate's name, or the reference's for rows of its own.
    names: list[str]
    #: -1: top.
    parents: list[int]
    #: 0 module, 1 call, 2 collection of calls between modules, 3 gradients of parameters, 4 optimizer.
    kinds: list[int]
    #: 0 no numbers, 1 the same results whatever the inputs, 2 within rounding, 3 explained by its inputs,
    #: 4 unexplained, 5 candidate only, 6 reference only: the row's own, the page rolls up.
    status: list[int]
    #: Place in the merged order of execution; of a container that of its first child.
    orders: list[int]
    #: Rows that a finding names which is not harmless: the page gives them the status 7, if theirs is below 4.
    named: list[int]


class Culprit(TypedDict):
    """The row that a finding is about; ``finding`` is its number in the verdict."""

    row: int
    finding: int


class PlaceAnswer(Outline):
    """``/api/place``; of a single run, all ``sides`` and ``status`` are 0."""

    #: By row: the reference's name where it differs.
    twins: dict[str, str]
    sides: list[int]
    #: 0 forward, 1 backward, 2 optimizer.
    phases: list[int]
    #: Passes of the outermost module, from 0.
    micro: list[int]
    micro_steps: int
    #: Largest relative difference of inputs.
    input_difference: list[Difference]
    #: Largest relative difference of results.
    output_difference: list[Difference]
    #: What rounding and inputs explain of it.
    allowed: list[Difference]
    #: Of the candidate's results, as the next.
    largest: list[float | None]
    norm: list[float | None]
    #: 1 NaN/Inf in results, 2 NaN/Inf begins here, 4 other dtype, 8 other shape, 16 other arguments, 32 communication,
    #: 64 unset memory, 128 recomputed, 256 infinities of a mask in results, which the checks have nothing against (then
    #: 1 is not set).
    flags: list[int]
    #: The row of the leading finding in this place, else the first that is unexplained, of one side, or where NaN or
    #: Inf begins; -1: none.
    first: int
    culprits: list[Culprit]
    notes: list[Said]


class TensorSide(TypedDict):
    """A tensor, or what is none: that has ``value`` and no numbers."""

    type: str
    dtype: str | None
    shape: list[int] | None
    strides: list[int] | None
    max: Figure
    min: Figure
    mean: Figure
    norm: Figure
    #: How many elements, as the next.
    nan: int | None
    inf: int | None
    digest: str | None
    requires_grad: bool | None
    value: str | None
    #: True where the values were written.
    file: bool
    unset: bool


class TensorAnswer(TypedDict):
    """One slot of a row on both sides: ``input.0``, ``parameters.weight``, ``output.0``."""

    slot: str
    group: Group
    candidate: TensorSide | None
    reference: TensorSide | None
    #: 0 to 6, as of a row.
    status: int
    #: The difference relative to the tensor's scale.
    relative: Difference
    #: What rounding, and of a result what the inputs, explain of it.
    allowed: Difference
    #: The difference in units of what rounding may do, for tables of Python.
    units: Difference
    #: True where statistics alone are known: the difference may be larger.
    at_least: bool
    #: Absolute and relative.
    differences: dict[Statistic, tuple[float | None, float | None]]
    #: What the size does not say.
    words: Said


class Link(TypedDict):
    """A row that made, or takes, the tensor of a slot."""

    slot: str
    row: int
    name: str


class Partner(TypedDict):
    """A call of another rank; its row is found by its name in its own place."""

    rank: int | str
    place: int | None
    #: 2: the name is of the reference alone, as the call that it answers is.
    side: Literal[0, 2]
    name: str
    direction: Direction


class Frames(TypedDict):
    """Where a call was made, innermost first."""

    candidate: list[str]
    reference: list[str]


class NodeAnswer(TypedDict):
    """``/api/node``."""

    name: str
    twin: str | None
    kind: int
    side: int
    status: int
    order: int
    module: str | None
    why_unmatched: Said | None
    tensors: list[TensorAnswer]
    source: Frames
    producers: list[Link]
    consumers: list[Link]
    partners: list[Partner]
    findings: list[int]
    notes: list[Said]


class Histogram(TypedDict):
    """Edges of bins, and how many elements each bin holds."""

    edges: list[float]
    candidate: list[int]
    reference: list[int]
    difference_edges: list[float]
    difference: list[int]
    #: One of so many elements was counted.
    every: int


class Picture(TypedDict):
    """``/api/picture``."""

    shape: list[int]
    #: As ``[3, :, :]``.
    slice: str
    #: How many rows and columns of the tensor one cell stands for.
    cell: tuple[int, int]
    #: At most 128 x 128, the largest absolute difference of each cell.
    cells: list[list[float]]
    largest: float
    histogram: Histogram


class RanksAnswer(TypedDict):
    """``/api/ranks``; the lists but ``layers`` have an entry for each rank."""

    layers: list[str]
    ranks: list[Rank]
    places: list[int]
    #: The status of each layer, 7 for what a finding names; 0: not known.
    worst: list[list[int]]


class LinesAnswer(TypedDict):
    """``/api/lines``: source lines, each once, as ``/w/model.py:57 in forward: return self.fc(x)``."""

    lines: list[str]
    #: The line that a row was called from, of a backward call that of its forward call; -1: none.
    rows: list[int]


class MatchesAnswer(TypedDict):
    """``/api/matches``: names of the candidate, and those of the reference that were paired with them by hand."""

    pairs: dict[str, str]
    file: str


class Embedded(TypedDict):
    """What a file made with ``--html`` carries; what is not in it the page calls absent from this file."""

    overview: Overview
    #: By index, as the next but for ranks, which are by step.
    places: dict[str, PlaceAnswer]
    nodes: dict[str, dict[str, NodeAnswer]]
    #: By ``index/row/slot``.
    pictures: dict[str, Picture]
    lines: dict[str, LinesAnswer]
    ranks: dict[str, RanksAnswer]
