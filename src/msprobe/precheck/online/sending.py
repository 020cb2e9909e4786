"""What the debugger of a training asks for: where its records are sent."""

from __future__ import annotations

from msprobe.config.settings import Online
from msprobe.precheck.online.shared_folder import FolderSender
from msprobe.precheck.online.sink import Sender, Stream, StreamSink
from msprobe.precheck.online.tcp import TcpSender
from msprobe.precheck.online.tls import context_for


class Sending:
    """The records of one process on their way. ``sink``: where its recorder puts them.

    Keys are read at once: raises PathError or InvalidInputError where they cannot be used. The connection is made with
    the first record.
    """

    def __init__(self, target: Online) -> None:
        tls = None if target.nfs_path else context_for(target.tls_path, "client")

        def connect() -> Sender:
            if target.nfs_path:
                return FolderSender(target.nfs_path)
            return TcpSender(target.host, target.port, tls)

        self._stream = Stream(connect)
        self.sink = StreamSink(self._stream)

    def close(self) -> None:
        """Send what is left, and say that no more comes."""
        self._stream.close()
