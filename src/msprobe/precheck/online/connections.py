"""Connections to a port, each read by a thread of its own, and bounded in number and time.

Who has sent no whole frame yet is a stranger: strangers are few, and sent away when they stay silent or slow. Whatever
one connection sends, or fails to send, nothing else is harmed.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable

from msprobe import log
from msprobe.errors import PathError
from msprobe.messages import said
from msprobe.precheck.online import words

#: A stranger has so many seconds for the handshake of TLS and its first frame.
FIRST_FRAME_SECONDS = 30.0
#: A frame that has begun has so many seconds, and one more for each so many bytes.
FRAME_SECONDS = 30.0
SLOWEST_BYTES_A_SECOND = 1 << 16
#: The oldest stranger is sent away for a new one when there are more.
MOST_STRANGERS = 128
# A stranger of less than this age may be a rank that has connected a moment ago, seconds.
_YOUNG = 1.0
# So often somebody looks for connections whose time is over, seconds.
_LOOK = 0.5
# So many lines of the log are about connections that end badly.
_MOST_LINES = 100


class Connection:
    """One connection. ``who``: its address. ``idle``: seconds that it may be silent between two frames."""

    _numbers = itertools.count(1)

    def __init__(self, accepted: socket.socket, who: str, idle: float) -> None:
        self.socket = accepted
        self.who = who
        #: A name for a sender that has none of its own; no sender can choose it.
        self.name = f"#{next(self._numbers)}"
        #: The name of who sends over it; "" before its first frame.
        self.sender = ""
        #: When its time is over, by the monotonic clock.
        self.deadline = time.monotonic() + FIRST_FRAME_SECONDS
        self.began = self.spoke = time.monotonic()
        #: Why it was sent away; "" if it was not.
        self.sent_away = ""
        self._idle = idle

    def read_head(self, length: int) -> bytearray:
        """The beginning of the next frame, which may come late. Raises OSError or EOFError."""
        if self.sender:
            self.deadline = time.monotonic() + self._idle
        head = bytearray(self.socket.recv(length))
        self.spoke = time.monotonic()
        if self.sender:
            self.deadline = self.spoke + FRAME_SECONDS
        if not head:
            raise EOFError(said("connection-was-closed"))
        return head if len(head) == length else head + words.read_exactly(self.socket, length - len(head))

    def read(self, length: int) -> bytearray:
        """More of a frame that has begun. Raises OSError or EOFError."""
        self.deadline = max(self.deadline, time.monotonic() + length / SLOWEST_BYTES_A_SECOND)
        return words.read_exactly(self.socket, length)

    def wait_without_end(self) -> None:
        """Its frame is there and waits for others: that is no fault of its sender."""
        self.deadline = math.inf

    def send(self, data: bytes) -> None:
        """Send a word. Raises OSError."""
        self.deadline = time.monotonic() + FRAME_SECONDS
        self.socket.sendall(data)

    def send_away(self, why: str) -> None:
        """End it, from whatever thread; whoever reads from it finds its end."""
        self.sent_away = self.sent_away or why
        with contextlib.suppress(OSError):
            # Not that of SSLSocket, which would let its reader go on without TLS.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class Connections:
    """Listens at an address. ``serve`` is called for each connection, in a thread of its own, after the handshake.

    Raises PathError if the address cannot be listened at.
    """

    def __init__(
        self, host: str, port: int, tls: ssl.SSLContext | None, idle: float, serve: Callable[[Connection], None]
    ) -> None:
        self._tls = tls
        self._idle = idle
        self._serve = serve
        self._lock = threading.Lock()
        self._open: set[Connection] = set()
        self._is_open = True
        self._lines = 0
        try:
            self._listening = socket.create_server((host, port), family=_family(host))
        except (OSError, OverflowError) as error:
            raise PathError(said("online-cannot-listen", host, port, error)) from error
        self._listening.settimeout(_LOOK)
        #: The port that is listened at; one that was free, if 0 was given.
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True, name="msprobe-accept").start()

    def close(self) -> None:
        """Listen no more, and end all connections."""
        self._is_open = False
        # An accept() that waits is not woken by close() alone.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in self._all():
            connection.send_away(said("check-has-ended"))

    def complain(self, text: str) -> None:
        """A line in the log about a connection; of many that end badly the last ones get none."""
        with self._lock:
            self._lines += 1
            lines = self._lines
        if lines <= _MOST_LINES:
            log.warning(said("online-connection", text))
        if lines == _MOST_LINES:
            log.warning(said("online-connections-not-named"))

    def _all(self) -> list[Connection]:
        with self._lock:
            return list(self._open)

    def _accept(self) -> None:
        looked = 0.0
        while self._is_open:
            if time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                self._send_late_away()
            try:
                accepted, address = self._listening.accept()
            except TimeoutError:
                continue
            except OSError:
                if not self._is_open:
                    return
                # Too many files are open, as a rule: the one that is silent for the longest time makes room.
                self._make_room(0, 0.0)
                time.sleep(0.05)
                continue
            connection = Connection(accepted, f"{address[0]}:{address[1]}", self._idle)
            self._make_room(MOST_STRANGERS - 1, _YOUNG)
            with self._lock:
                self._open.add(connection)
            try:
                threading.Thread(target=self._run, args=(connection,), daemon=True, name="msprobe-receive").start()
            except RuntimeError as error:  # no more threads
                connection.send_away(str(error))
                self._forget(connection)

    def _make_room(self, most: int, age: float) -> None:
        """Send one away if there are more than ``most`` strangers; without strangers, and for 0, any other one."""
        connections = self._all()
        strangers = [connection for connection in connections if not connection.sender]
        if len(strangers) <= most and most:
            return
        oldest = min(strangers or connections, key=lambda connection: connection.spoke, default=None)
        if oldest is not None and time.monotonic() - oldest.began >= age:
            oldest.send_away(said("silent-for-others"))

    def _send_late_away(self) -> None:
        now = time.monotonic()
        for connection in self._all():
            if now > connection.deadline:
                connection.send_away(said("silent-too-long"))

    def _run(self, connection: Connection) -> None:
        try:
            if self._tls is not None:
                connection.socket = self._tls.wrap_socket(
                    connection.socket, server_side=True, do_handshake_on_connect=False
                )
                connection.socket.do_handshake()
            words.keep_alive(connection.socket)
        except (ssl.SSLError, OSError, ValueError) as error:
            self.complain(said("sent-away-for-tls", connection.who, connection.sent_away or error))
            self._forget(connection)
            return
        try:
            self._serve(connection)
        finally:
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        with self._lock:
            self._open.discard(connection)
        connection.socket.close()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
