"""Frames over TCP: the training connects, sends frames and waits for a word on each; the other side listens.

The word on a frame is four letters and the frame's number: ``TAKE`` it is there, ``MORE`` it came damaged and is wanted
again, ``DONE`` the farewell has been heard.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator

from msprobe import log
from msprobe.errors import NotAvailableError, PathError
from msprobe.precheck.online import frames
from msprobe.precheck.online.frames import Frame, FrameError

_WORD = struct.Struct(">4sQ")
_TAKE, _MORE, _DONE = b"TAKE", b"MORE", b"DONE"
#: A frame without content says that this rank sends no more.
_FAREWELL = frames.HEAD.pack(b"BYE!", 0, 0, 0)
_SENT_AGAIN = 2
# How often a receiver looks whether all have ended.
_LOOK = 0.2


class TcpSender:
    """The training's end of a connection. One thread uses it.

    ``patience``: seconds to wait for the other side to listen, and for its word on a frame. Raises NotAvailableError
    if nobody listens, or the other side is not who it should be.
    """

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None, patience: float = 60.0) -> None:
        self._address = (host, port)
        self._tls = tls
        self._patience = patience
        # Greater than that of any sender before, so that a frame which is sent again is known.
        self._sequence = time.time_ns()
        self._socket = self._connect()

    def send(self, frame: Frame) -> None:
        """Send one frame and wait until it is taken. Raises NotAvailableError if it is not."""
        self._sequence += 1
        pieces = frames.pack(frame, self._sequence)
        for attempt in range(_SENT_AGAIN + 1):
            try:
                for piece in pieces:
                    self._socket.sendall(piece)
                word, number = _WORD.unpack(_exactly(self._socket, _WORD.size))
            except (OSError, EOFError) as error:
                if attempt == _SENT_AGAIN:
                    raise NotAvailableError(f"{self._where()} has hung up: {error}") from error
                self._socket.close()
                self._socket = self._connect()
                continue
            if word == _TAKE and number == self._sequence:
                return
        raise NotAvailableError(f"{self._where()} does not take a {frame.what}, sent {_SENT_AGAIN + 1} times")

    def close(self) -> None:
        """Say that no more comes."""
        with contextlib.suppress(OSError, EOFError), self._socket:
            self._socket.sendall(_FAREWELL)
            _exactly(self._socket, _WORD.size)

    def _where(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def _connect(self) -> socket.socket:
        until = time.monotonic() + self._patience
        while True:
            try:
                found = socket.create_connection(self._address, timeout=self._patience)
            except OSError as error:
                if time.monotonic() > until:
                    raise NotAvailableError(f"nobody listens at {self._where()}: {error}") from error
                time.sleep(0.2)
                continue
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _keep_alive(found)
            if self._tls is None:
                return found
            try:
                return self._tls.wrap_socket(found)
            except (ssl.SSLError, OSError) as error:
                found.close()
                raise NotAvailableError(f"{self._where()} does not agree on TLS: {error}") from error


class TcpReceiver:
    """The other end: takes frames of any number of ranks, in the order in which they come.

    ``senders``: it is over when so many ranks have said farewell, or have been lost for ``patience`` seconds, in which
    a rank that lives connects again. ``idle``: or when nothing has come for so many seconds. ``held``: so many frames
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
    ) -> None:
        self._tls = tls
        self._senders = senders
        self._idle = idle
        self._patience = patience
        self._frames: queue.Queue[Frame] = queue.Queue(held)
        self._is_open = True
        self._lock = threading.Lock()
        self._ended = 0
        # Ranks whose connection has broken, and when.
        self._lost: dict[int, float] = {}
        # Those of them that were called dead.
        self._told: set[int] = set()
        # Rank -> the number of its last frame.
        self._last: dict[int, int] = {}
        try:
            self._listening = socket.create_server((host, port), family=_family(host))
        except OSError as error:
            raise PathError(f"cannot listen at {host}:{port}: {error}.") from error
        #: The port that is listened at; one that was free, if 0 was given.
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True, name="msprobe-accept").start()

    def frames(self) -> Iterator[Frame]:
        """All frames, until every sender has ended."""
        last = time.monotonic()
        while True:
            with contextlib.suppress(queue.Empty):
                yield self._frames.get(timeout=min(self._idle, _LOOK))
                last = time.monotonic()
                continue
            # Whoever has said farewell was told that all its frames are there.
            if self._is_over() and self._frames.empty():
                return
            if time.monotonic() - last >= self._idle:
                log.warning(f"nothing has come for {self._idle:g} seconds: the check ends with what is there.")
                return

    def _is_over(self) -> bool:
        with self._lock:
            now = time.monotonic()
            gone = sorted(rank for rank, since in self._lost.items() if now - since > self._patience)
            is_over = self._ended + len(gone) >= self._senders
            told, self._told = set(gone) - self._told, set(gone)
        for rank in sorted(told):
            log.warning(
                f"online check: rank {rank} has died: its connection has broken, and it has not come back for "
                f"{self._patience:g} seconds. What came of it until then is judged."
            )
        return is_over

    def close(self) -> None:
        """Listen no more."""
        self._is_open = False
        # An accept() that waits is not woken by close() alone.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while self._is_open:
            try:
                connection, address = self._listening.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(connection, f"{address[0]}:{address[1]}"), daemon=True, name="msprobe-receive"
            ).start()

    def _serve(self, connection: socket.socket, who: str) -> None:
        """Take what one sender sends, until it ends; whatever it sends, nothing else is harmed."""
        try:
            if self._tls is not None:
                connection.settimeout(30)
                connection = self._tls.wrap_socket(connection, server_side=True)
            connection.settimeout(self._idle)
            _keep_alive(connection)
        except (ssl.SSLError, OSError) as error:
            log.error(f"{who} does not agree on TLS and was sent away: {error}")
            connection.close()
            return
        ranks: set[int] = set()
        with connection:
            try:
                while self._take(connection, who, ranks):
                    pass
            except (FrameError, OSError, EOFError, MemoryError) as error:
                # It may connect again and go on.
                with self._lock:
                    self._lost.update(dict.fromkeys(ranks, time.monotonic()))
                told = f" of rank {', '.join(map(str, sorted(ranks)))}" if ranks else ""
                log.warning(f"the connection{told} from {who} has ended without a farewell: {error}")

    def _take(self, connection: socket.socket, who: str, ranks: set[int]) -> bool:
        """One frame, whose rank is added to ``ranks``; False when the sender has said farewell."""
        head = _exactly(connection, frames.HEAD.size)
        if bytes(head) == _FAREWELL:
            connection.sendall(_WORD.pack(_DONE, 0))
            with self._lock:
                self._ended += 1
            return False
        waiting: list[bytes | bytearray] = [head]

        def read(length: int) -> bytes | bytearray:
            return waiting.pop() if waiting else _exactly(connection, length)

        try:
            frame, sequence = frames.unpack(read)
        except FrameError as error:
            if not error.is_whole:
                raise
            log.warning(f"{who}: {error}; it is asked for once more.")
            connection.sendall(_WORD.pack(_MORE, 0))
            return True
        if frame.rank not in ranks:
            ranks.add(frame.rank)
            with self._lock:
                self._lost.pop(frame.rank, None)
        # One that was taken, but whose sender was not told so, comes again.
        if sequence > self._last.get(frame.rank, -1):
            self._last[frame.rank] = sequence
            self._frames.put(frame)
        connection.sendall(_WORD.pack(_TAKE, sequence))
        return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _keep_alive(connection: socket.socket) -> None:
    """Ask an end that says nothing whether it is there: a machine without power closes no connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _exactly(connection: socket.socket, length: int) -> bytearray:
    """The next ``length`` bytes; memory is taken as they come, so that a length alone takes none."""
    found = bytearray()
    while len(found) < length:
        piece = connection.recv(min(length - len(found), 1 << 20))
        if not piece:
            raise EOFError(f"{len(found)} of {length} bytes came")
        found += piece
    return found
