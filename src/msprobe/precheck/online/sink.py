"""The training's side: what its recorder writes down goes to who checks it, in place of a dump folder.

Frames wait in a queue of bounded size and are sent by a thread of their own. When nobody takes them any more, the rest
is dropped, with one line in the log, and the training goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from msprobe import log
from msprobe.capture import native
from msprobe.capture.sinks import StepFacts
from msprobe.errors import MsprobeError
from msprobe.messages import said
from msprobe.precheck.online.frames import WireFrame
from msprobe.store.background import Background

#: So many bytes wait to be sent; the training waits for room then.
MOST_WAITING_BYTES = 1 << 30
# What a frame takes beside its data.
_FRAME_BYTES = 512


class Sender(Protocol):
    """Whatever takes frames (:mod:`tcp`, :mod:`shared_folder`)."""

    def send(self, frame: WireFrame) -> None:
        """Send one. Raises MsprobeError if it is not taken."""

    def close(self) -> None:
        """No more comes."""


class Stream:
    """Frames on their way. ``connect`` is called in the thread that sends, with the first frame.

    ``patience``: the training waits so many seconds for room, then the stream fails.
    """

    def __init__(self, connect: Callable[[], Sender], patience: float = 60.0, most: int = MOST_WAITING_BYTES) -> None:
        self._connect = connect
        self._patience = patience
        self._background = Background("msprobe-online", self._work, most)
        #: True when frames were lost.
        self.failed = False

    def put(self, frame: WireFrame) -> None:
        """Send a frame soon. Never raises."""
        size = len(memoryview(frame.data).cast("B")) + _FRAME_BYTES
        is_taken = self._background.put(frame, size, self._patience)
        if not is_taken and not self._background.is_closed:
            self._fail(said("frame-not-taken", self._patience))

    def close(self, seconds: float = 60.0) -> None:
        """Send what waits, and say that no more comes."""
        self._background.close(seconds)

    def _fail(self, why: str) -> None:
        if not self.failed:
            self.failed = True
            log.error(said("online-sends-no-more", why))
        self._background.drop()

    def _work(self, frames: Iterator[WireFrame]) -> None:
        sender = None
        try:
            sender = self._connect()
            for frame in frames:
                sender.send(frame)
        except Exception as error:
            self._fail(error.message if isinstance(error, MsprobeError) else f"{type(error).__name__}: {error}")
        if sender is not None:
            # Also when something failed: nobody is to wait for this rank.
            with contextlib.suppress(Exception):
                sender.close()


class StreamSink:
    """Where the records of a run go (:class:`msprobe.capture.sinks.Sink`)."""

    #: Nobody has to be informed where the records are.
    place: str | None = None

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def begin(self, facts: StepFacts) -> StreamStep:
        return StreamStep(facts, self.stream)

    def tensors(self, step: Any) -> StreamTensors:
        return StreamTensors(step)

    def readable(self, step: Any) -> int:
        return int(step.count)


class StreamStep:
    """Sends the records of one step (:class:`msprobe.capture.sinks.StepSink`)."""

    def __init__(self, facts: StepFacts, stream: Stream) -> None:
        self._stream = stream
        self._step, self._rank = facts.step, facts.rank or 0
        self.count = 0
        self.send(
            "begin",
            has_rank=facts.rank is not None,
            header=facts.header,
            extra=facts.extra,
            kind=facts.kind,
            with_stacks=facts.with_stacks,
            with_construct=facts.with_construct,
            with_tensors=facts.with_tensors,
        )

    @property
    def failed(self) -> bool:
        """True if something is missing."""
        return self._stream.failed

    def send(self, what: str, data: Any = b"", **content: Any) -> None:
        """One frame of this step."""
        self._stream.put(WireFrame(what, self._step, self._rank, content, data))

    def put_call(self, name: str, tree: object, stack_id: int | None, parent: Any, rows: Any = None) -> None:
        self.count += 1
        self.send("record", native.in_one_line(tree), name=name, stack=stack_id, parent=parent)

    def define_stack(self, stack_id: int, frames: Sequence[str]) -> None:
        self.send("stack", stack=stack_id, frames=list(frames))

    def put_parent(self, child: str, parent: Any) -> None:
        self.send("parent", name=child, parent=parent)

    def reserve(self, name: str) -> None:
        self.send("reserve", name=name)

    def error(self, text: str) -> None:
        self.send("error", text=text)

    def publish(self, final: bool, interrupted: bool = False) -> None:
        if final:
            self.send("end", is_complete=not interrupted)

    def give_up(self) -> None:
        self.send("end", is_complete=False, is_wanted=False)


class _Room:
    __slots__ = ("data",)

    def __init__(self, nbytes: int) -> None:
        self.data = memoryview(bytearray(nbytes))


class StreamTensors:
    """Sends whole tensors (:class:`msprobe.capture.sinks.TensorSink`)."""

    def __init__(self, step: StreamStep) -> None:
        self._step = step

    @property
    def failed(self) -> bool:
        """True if some are missing."""
        return self._step.failed

    def room(self, nbytes: int) -> _Room | None:
        return None if self.failed else _Room(nbytes)

    def give_back(self, room: _Room) -> None:
        """It goes by itself."""

    def save(self, name: str, payload: Any, crc32: int | None = None, room: _Room | None = None) -> None:
        data = payload.data if room is not None else bytes(payload.data)
        self._step.send("tensor", data, name=name, dtype=payload.dtype_name, shape=list(payload.shape))

    def link(self, name: str, existing_name: str) -> None:
        self._step.send("link", name=name, existing=existing_name)

    def flush(self) -> None:
        """All that was saved is sent in its order, before the end of the step."""

    def close(self) -> None:
        """Nothing is held."""
