"""The text of a tensor's description, and what it is put together from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msprobe.capture import native
from msprobe.capture.native import in_one_line
from msprobe.capture.statistics_text import SEPARATOR, StatisticsText, answer_of, statistics_in
from msprobe.statistics_table import Numbers

REQUIRES_GRAD = b'"requires_grad":true'
REQUIRES_NO_GRAD = b'"requires_grad":false'
# Why a tensor is not read.
IN_GRAPH = "inside of a graph that the program captures"


class _PlainInfo:
    """What a description consists of."""

    __slots__ = ("cut", "nonfinite", "text")

    text: bytes
    cut: int  # where data_name belongs in the text: behind the reference's keys, before ours
    nonfinite: bool | None

    def __init__(self, text: bytes, cut: int, nonfinite: bool | None) -> None:
        self.text = text
        self.cut = cut
        self.nonfinite = nonfinite


if TYPE_CHECKING or native.Info is None:
    _Info = _PlainInfo
else:
    # The same; the garbage collector need not know of it, and there are some hundred in a step.
    _Info = native.Info


class TensorInfo(_Info):
    """The description of one tensor.

    ``text``: JSON object, written for depth 0. ``nonfinite``: whether an element is NaN or infinite, None
    when not known. ``late``: the numbers are still on the device, and ``text`` says so until
    ``TensorStatistics.flush()`` fills them in. ``data_name``: the file that keeps the values, if one does.
    """

    __slots__ = ()

    late = False
    # Memory that nobody has written: there are no values to keep.
    unset = False
    # Nor are there where an error of the device took them.
    lost = False
    data_name: str | None = None

    def with_file(self, data_name: str) -> TensorInfo:
        """The same description, naming the file that keeps the values."""
        return NamedInfo(self, data_name)

    @property
    def statistics(self) -> dict[str, Any]:
        """The statistics by their keys in the file; null as None, also those that are still on a device."""
        return statistics_in(self.text)

    def __repr__(self) -> str:
        return f"TensorInfo({self.text.decode(errors='replace')})"


class UnsetInfo(TensorInfo):
    """A description of memory that nobody has written yet."""

    __slots__ = ()

    unset = True


class NamedInfo(TensorInfo):
    """A description that names the file of the values."""

    __slots__ = ("data_name", "late")

    def __init__(self, base: TensorInfo, data_name: str) -> None:
        self.late = base.late
        self.data_name = data_name
        self.fill(base)

    def fill(self, base: TensorInfo) -> None:
        """Take over the text of ``base``."""
        entry = b"" if base.unset or base.lost else b',"data_name":' + in_one_line(self.data_name)
        self.text = base.text[: base.cut] + entry + base.text[base.cut :]
        self.cut = base.cut + len(entry)
        self.nonfinite = base.nonfinite


class Content(NamedTuple):
    """What is said of a tensor's elements, as it stands in the text."""

    # `"Max": .. "Norm": ..` with a comma behind, or the XOR, or nothing
    middle: bytes
    # `, "md5": ".."` or nothing
    md5: bytes
    # `, "nan": .., "inf": .., "zero": .., "digest": ".."` or nothing
    extra: bytes
    nonfinite: bool | None


class TensorNumbers(NamedTuple):
    """The numbers of a tensor, its digests if they are asked for, and the statistics that are to be written."""

    rows: StatisticsText
    numbers: Numbers
    crc: bytes
    xxh3: bytes

    def content(self) -> Content:
        """The same as text."""
        middle, counts, answer = self.rows.render(self.numbers)
        return Content(
            middle + SEPARATOR if middle else b"",
            b',"md5":"%s"' % self.crc if self.crc else b"",
            (SEPARATOR + counts if counts else b"") + digest_key(self.xxh3),
            answer != 0 if answer >= 0 else None,
        )


def digest_key(xxh3: bytes) -> bytes:
    """The digest as it stands in a description."""
    return b',"digest":"%s"' % xxh3 if xxh3 else b""


def row_key(row: int | None) -> bytes:
    """The number of a row as it stands in a description."""
    return b"" if row is None else b',"row":%d' % row


class Envelope(NamedTuple):
    """A description without its content."""

    prefix: bytes
    requires_grad: bool
    # further keys before and behind what the content adds, each with a comma before it
    before: bytes
    behind: bytes

    def text(self, content: Content) -> tuple[bytes, int]:
        """The whole text, and where the name of a file belongs in it."""
        requires = REQUIRES_GRAD if self.requires_grad else REQUIRES_NO_GRAD
        head = self.prefix + content.middle + requires + content.md5
        return head + self.before + content.extra + self.behind + b"}", len(head)


class MeasuredInfo(TensorInfo):
    """A description that carries its numbers: what is not written needs no text. ``measured``: where they are text."""

    __slots__ = ("_frame", "_made", "measured")

    def __init__(self, frame: Envelope, measured: TensorNumbers) -> None:
        self._frame = frame
        self._made: tuple[bytes, int] | None = None
        self.measured = measured
        answer = answer_of(measured.numbers)
        self.nonfinite = answer != 0 if answer >= 0 else None

    def _text_and_cut(self) -> tuple[bytes, int]:
        if self._made is None:
            self._made = self._frame.text(self.measured.content())
        return self._made

    @property
    def text(self) -> bytes:  # type: ignore[override]
        """As of every description, made when it is first asked for."""
        return self._text_and_cut()[0]

    @property
    def cut(self) -> int:  # type: ignore[override]
        """As of every description."""
        return self._text_and_cut()[1]

    @property
    def statistics(self) -> dict[str, Any]:
        return self.measured.rows.values(self.measured.numbers)


class LateInfo(TensorInfo):
    """A description whose numbers come later.

    ``elements``: what they will be made of. ``written``: says then whether memory that ``empty`` or its like gave was
    written.
    """

    __slots__ = ("_frame", "_named", "elements", "late", "lost", "unset", "written")

    def __init__(self, frame: Envelope, middle: bytes, elements: Any, written: Any = None) -> None:
        text, cut = frame._replace(behind=frame.behind + keys([("unsupported", "not read back")])).text(
            Content(middle, b"", b"", None)
        )
        super().__init__(text, cut, None)
        self._frame = frame
        self._named: list[NamedInfo] = []
        self.late = True
        self.unset = self.lost = False
        self.elements = elements
        self.written = written

    def with_file(self, data_name: str) -> TensorInfo:
        named = NamedInfo(self, data_name)
        self._named.append(named)
        return named

    def fill(self, content: Content, row: int | None = None, unsupported: str | None = None) -> None:
        """Put the numbers in, also where a file was named meanwhile. ``unsupported``: why there are none."""
        self._fill(content, row_key(row) if unsupported is None else keys([("unsupported", unsupported)]))

    def lose(self, absent: Content, why: str) -> None:
        """The numbers will not come."""
        self.lost = True
        self.fill(absent, unsupported=why)

    def leave_unset(self, absent: Content) -> None:
        """Nobody has written the memory, so no file keeps it."""
        self.unset = True
        self._fill(absent, keys([("unset", True)]))

    def _fill(self, content: Content, behind: bytes) -> None:
        frame = self._frame._replace(behind=self._frame.behind + behind)
        self.text, self.cut = frame.text(content)
        self.nonfinite = content.nonfinite
        self.late = False
        for named in self._named:
            named.fill(self)
            named.late = False
        self._named.clear()


class SlotInfo(TensorInfo):
    """A description of a tensor in a graph that is captured: each replay brings numbers of its own. ``elements``: in
    which slots of the graph these will be.
    """

    __slots__ = ("_frame", "_middle", "elements")

    def __init__(self, frame: Envelope, middle: bytes, elements: Any) -> None:
        behind = frame.behind + keys([("unsupported", IN_GRAPH)])
        text, cut = frame._replace(behind=behind).text(Content(middle, b"", b"", None))
        super().__init__(text, cut, None)
        self._frame = frame
        self._middle = middle
        self.elements = elements

    def for_replay(self, elements: Any) -> LateInfo:
        """The description for one replay. ``elements``: what its numbers will be made of."""
        return LateInfo(self._frame, self._middle, elements)


def unset(frame: Envelope, absent: Content) -> TensorInfo:
    """The description of memory that nobody has written."""
    text, cut = frame.text(absent)
    return UnsetInfo(text, cut, None)


def prefix(type_name: str, dtype: str, shape: Iterable[int]) -> bytes:
    """The beginning of a description, up to where the statistics stand."""
    head = in_one_line({"type": type_name, "dtype": dtype, "shape": [int(n) for n in shape]})
    return head[: -len(b"}")] + b","


def keys(pairs: Sequence[tuple[str, Any]]) -> bytes:
    """Further keys of a description, each with a comma before it."""
    if not pairs:
        return b""
    return b"".join(b"," + in_one_line(key) + b":" + in_one_line(value) for key, value in pairs)
