"""Frames over TCP, the checking end: takes those of any number of senders, and says a word on each (:mod:`words`).

What it has said ``TAKE`` to is given to who takes frames; when that one cannot keep a frame, the sender hears ``DENY``
on its next frame, on the end of its step, or on its farewell.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import replace

from msprobe import log
from msprobe.messages import said, text_of
from msprobe.precheck.online import frames, words
from msprobe.precheck.online.connections import Connection, Connections
from msprobe.precheck.online.frames import GONE, FrameError, WireFrame
from msprobe.precheck.online.sources import Delivery, Sender

# How often a receiver looks whether all have ended.
_LOOK = 0.2
#: So many steps of one sender may have begun and not ended.
MOST_OPEN_STEPS = 64


class TcpReceiver:
    """Takes frames of any number of ranks, in the order in which they come.

    A rank has ended when who has sent whole steps of it, with records, says farewell; or when records of it have come,
    and its connection has been lost for ``patience`` seconds, in which a rank that lives connects again. ``senders``:
    it is over when so many ranks have ended, and no other one has sent a record for ``grace`` seconds. ``ranks``: those
    that are wanted; empty for all. ``idle``: or when nothing has come for so many seconds. ``held``: so many frames
    wait to be taken; senders wait when there are more.
    Raises PathError if the address cannot be listened at.
    """

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        senders: int = 1,
        idle: float = 600.0,
        held: int = 20,
        patience: float = 70.0,
        ranks: Collection[int] = (),
        grace: float = 20.0,
    ) -> None:
        self._ranks = frozenset(ranks)
        self._senders = min(senders, len(self._ranks)) if self._ranks else senders
        self._idle = idle
        self._held = held
        self._patience = patience
        self._grace = grace
        # Guards all of the following.
        self._changed = threading.Condition()
        self._waiting: deque[Delivery] = deque()
        self._is_over = False
        self._sources: dict[str, Sender] = {}
        self._ended: set[int] = set()
        # Ranks that were called dead.
        self._dead: set[int] = set()
        self._connections = Connections(host, port, tls, idle, self._serve)
        #: The port that is listened at; one that was free, if 0 was given.
        self.port: int = self._connections.port

    def frames(self) -> Iterator[WireFrame]:
        """All frames, until every sender has ended. One of the kind ``GONE`` says that its sender sends no more."""
        last = time.monotonic()
        try:
            while True:
                delivery = self._next()
                if delivery is not None:
                    if delivery.frame is not None:
                        yield delivery.frame
                    delivery.end()
                    last = time.monotonic()
                    continue
                if self._has_ended():
                    return
                if time.monotonic() - last >= self._idle:
                    log.warning(said("online-nothing-comes", self._idle))
                    return
        finally:
            self._end()

    def refuse(self, sender: str, why: str, is_of_disk: bool) -> None:
        """Say that a frame of ``sender`` cannot be kept, as it is none, or as the disk does not take it."""
        with self._changed:
            source = self._sources.get(sender)
            if source is not None:
                source.problem = source.problem or why
                if is_of_disk:
                    source.unkept |= {rank for rank, _ in source.open}

    def close(self) -> None:
        """Listen no more."""
        self._end()
        self._connections.close()

    def _next(self) -> Delivery | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, min(self._idle, _LOOK))
            if not self._waiting:
                return None
            delivery = self._waiting.popleft()
            self._changed.notify_all()
            return delivery

    def _end(self) -> None:
        """Take nothing more, and say so to those whose frames wait."""
        with self._changed:
            self._is_over = True
            for source in self._sources.values():
                source.problem = source.problem or said("check-has-ended")
            for sender in self._waiting:
                sender.end()
            self._waiting.clear()
            self._changed.notify_all()

    def _has_ended(self) -> bool:
        with self._changed:
            known = list(self._sources.values())
            lost = [source for source in known if source.is_lost(self._patience)]
            living = {rank for source in known if source not in lost for rank in source.known}
            dead = {rank for source in lost for rank in source.known} - living - self._ended
            news, self._dead = dead - self._dead, dead
            for source in lost:
                if source.open:
                    self._let_go(source)
                if not source.known:
                    del self._sources[source.name]
            is_training = any(source.is_training(self._grace) for source in known)
            is_over = len(self._ended | dead) >= self._senders and not is_training and not self._waiting
            self._is_over |= is_over
        for rank in sorted(news):
            log.warning(said("rank-connection-broke", rank, self._patience))
        return is_over

    def _let_go(self, source: Sender) -> None:
        """Nothing more comes of it: what has come of its open steps is all."""
        source.open.clear()
        self._waiting.append(Delivery(WireFrame(GONE, 0, 0, sender=source.name)))

    def _serve(self, connection: Connection) -> None:
        """Take what one connection sends, until it ends."""
        try:
            while self._take(connection):
                pass
        except Exception as error:
            # Also what nobody has thought of: it is one connection's end, and nobody else's.
            source = self._sources.get(connection.sender)
            ranks = sorted(source.known) if source else []
            whose = said("connection-of-ranks", ", ".join(map(str, ranks[:20]))) if ranks else ""
            why = connection.sent_away or text_of(error) or type(error).__name__
            self._connections.complain(said("connection-ended", whose, connection.who, why))
        finally:
            self._leave(connection)

    def _leave(self, connection: Connection) -> None:
        with self._changed:
            source = self._sources.get(connection.sender)
            if source is None:
                return
            source.connections -= 1
            if source.connections or source.has_said_farewell:
                return
            # It may connect again and go on; a sender without a name cannot.
            source.lost_since = time.monotonic()
            if source.name == connection.name:
                if source.open and not self._is_over:
                    self._let_go(source)
                if not source.known:
                    del self._sources[source.name]
            self._changed.notify_all()

    def _take(self, connection: Connection) -> bool:
        """One frame; False when the sender has said farewell."""
        head = connection.read_head(frames.HEAD.size)
        if bytes(head) == words.FAREWELL:
            self._hear_farewell(connection)
            return False
        waiting: list[bytes | bytearray] = [head]

        def read(length: int) -> bytes | bytearray:
            return waiting.pop() if waiting else connection.read(length)

        try:
            frame, sequence = frames.unpack(read)
            if connection.sender not in ("", frame.sender or connection.name):
                raise FrameError(said("second-sender"), is_whole=True)
        except FrameError as error:
            if error.is_damaged:
                self._connections.complain(said("frame-asked-again", connection.who, error))
                connection.send(words.WORD.pack(words.MORE, 0))
                return True
            if error.is_whole:
                connection.send(words.word_with_reason(words.DENY, str(error)))
            raise
        if not frame.sender:
            frame = replace(frame, sender=connection.name)
        source = self._source_of(frame.sender, connection)
        connection.wait_without_end()
        with source.lock:
            word = self._word_on(frame, sequence, bytes(head), source)
        connection.send(word)
        return True

    def _source_of(self, sender: str, connection: Connection) -> Sender:
        with self._changed:
            source = self._sources.get(sender)
            if source is None:
                source = self._sources[sender] = Sender(sender)
                if self._is_over:
                    source.problem = said("check-has-ended")
            if not connection.sender:
                connection.sender = sender
                source.connections += 1
            source.lost_since, source.has_said_farewell = None, False
            return source

    def _word_on(self, frame: WireFrame, sequence: int, head: bytes, source: Sender) -> bytes:
        try:
            is_again, delivery = source.place_of(sequence, head)
        except ValueError as error:
            return words.word_with_reason(words.DENY, str(error))
        if not is_again:
            if self._ranks and frame.rank not in self._ranks:
                why = said("rank-not-in-list", frame.rank)
                return words.word_with_reason(words.SKIP, why)
            if frame.what != "begin" and (frame.rank, frame.step) not in source.open:
                began = said("online-step-began-before", frame.step, frame.rank)
                log.once(("online check", source.name, frame.rank, frame.step), "warning", began)
                return words.word_with_reason(words.SKIP, said("step-began-before-check", frame.step, frame.rank))
            if frame.what == "begin" and len(source.open) >= MOST_OPEN_STEPS:
                return words.word_with_reason(words.DENY, said("too-many-unended-steps", MOST_OPEN_STEPS))
            delivery = Delivery(frame, is_awaited=frame.what == "end")
            self._put(delivery, source)
            source.remember(sequence, head, delivery)
        if delivery is not None:
            delivery.wait()
        # What was not kept is said with the next word.
        if source.problem:
            return words.word_with_reason(words.DENY, source.problem)
        return words.WORD.pack(words.TAKE, sequence)

    def _put(self, delivery: Delivery, source: Sender) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or source.problem or len(self._waiting) < self._held)
            if self._is_over:
                source.problem = source.problem or said("check-has-ended")
            if source.problem:
                delivery.end()
                return
            if delivery.frame is not None:
                source.note(delivery.frame)
            self._waiting.append(delivery)
            self._changed.notify_all()

    def _hear_farewell(self, connection: Connection) -> None:
        """All that came before has been taken when the word is said, and the ranks count as ended behind it."""
        connection.wait_without_end()
        source = self._sources.get(connection.sender)
        if source is None:
            # It has sent nothing, and nobody waits for it.
            connection.send(words.WORD.pack(words.DONE, 0))
            return
        delivery = Delivery(None, is_awaited=True)
        self._put(delivery, source)
        delivery.wait()
        if source.problem:
            connection.send(words.word_with_reason(words.DENY, source.problem))
        else:
            connection.send(words.WORD.pack(words.DONE, 0))
        with self._changed:
            # A rank that has begun, and of which nothing whole has come, counts as lost.
            source.has_said_farewell = bool(source.whole | source.unkept) or not source.known_ranks
            self._ended |= source.whole | source.unkept
            if source.open:
                self._let_go(source)
            self._changed.notify_all()
