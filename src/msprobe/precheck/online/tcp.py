"""Frames over TCP, the training's end: it connects, sends frames and waits for a word on each (:mod:`words`)."""

from __future__ import annotations

import secrets
import socket
import ssl
import time

from msprobe import log
from msprobe.errors import NotAvailableError
from msprobe.messages import said
from msprobe.precheck.online import frames, words
from msprobe.precheck.online.frames import WireFrame

_SENT_AGAIN = 2


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
        # By this the other side knows the frames of this sender from those of all others, whatever rank they name.
        self._name = secrets.token_hex(16)
        self._has_failed = False
        self._socket = self._connect()

    def send(self, frame: WireFrame) -> None:
        """Send one frame and wait until it is taken. Raises NotAvailableError if it is not."""
        self._has_failed = True
        self._send(frame)
        self._has_failed = False

    def _send(self, frame: WireFrame) -> None:
        self._sequence += 1
        pieces = frames.pack(frame, self._sequence, self._name)
        for attempt in range(_SENT_AGAIN + 1):
            try:
                for piece in pieces:
                    self._socket.sendall(piece)
                word, number, reason = self._read_word()
            except (OSError, EOFError) as error:
                if attempt == _SENT_AGAIN:
                    raise NotAvailableError(said("peer-hung-up", self._where(), error)) from error
                self._socket.close()
                self._socket = self._connect()
                continue
            if word == words.TAKE and number == self._sequence:
                return
            if word == words.SKIP:
                log.once(("online check skips", reason), "warning", said("online-skips", self._where(), reason))
                return
            if word == words.DENY:
                raise NotAvailableError(said("peer-rejects-step", self._where(), frame.what, frame.step, reason))
        raise NotAvailableError(said("peer-rejects", self._where(), frame.what, _SENT_AGAIN + 1))

    def close(self) -> None:
        """Say that no more comes. A check that has lost something of this rank, or does not answer, is named in the
        log.
        """
        problem = ""
        with self._socket:
            try:
                self._socket.sendall(words.FAREWELL)
                word, _, reason = self._read_word()
                if word == words.DENY:
                    problem = said("online-not-kept", self._where(), reason)
            except (OSError, EOFError) as error:
                problem = said("online-not-confirmed", self._where(), error)
        if problem and not self._has_failed:
            log.error(problem)

    def _read_word(self) -> tuple[bytes, int, str]:
        return words.read_word(lambda length: words.read_exactly(self._socket, length))

    def _where(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def _connect(self) -> socket.socket:
        until = time.monotonic() + self._patience
        while True:
            try:
                connection = socket.create_connection(self._address, timeout=self._patience)
            except OSError as error:
                if time.monotonic() > until:
                    raise NotAvailableError(said("peer-does-not-listen", self._where(), error)) from error
                time.sleep(0.2)
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            words.keep_alive(connection)
            if self._tls is None:
                return connection
            try:
                return self._tls.wrap_socket(connection)
            except (ssl.SSLError, OSError) as error:
                connection.close()
                raise NotAvailableError(said("peer-tls", self._where(), error)) from error
