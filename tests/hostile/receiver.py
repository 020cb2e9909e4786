"""An online check that listens, whoever attacks it, and a rank that sends it one honest step."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from support import forked

from hostile.made import TENSOR
from msprobe.precheck.online.spool import ReceivedStep, Spool
from msprobe.precheck.online.tcp_receiver import TcpReceiver

HOST = "127.0.0.1"
HEAD = struct.Struct(">4sIQI")
FAREWELL = HEAD.pack(b"BYE!", 0, 0, 0)
BEGIN: dict[str, Any] = {
    "header": {"task": "tensor", "level": "L1", "framework": "pytorch"},
    "extra": {},
    "kind": "dump",
    "with_tensors": True,
    "with_stacks": False,
    "with_construct": False,
}
RECORD: dict[str, Any] = {"name": "Functional.relu.0.forward", "stack": None, "parent": None}
Attack = Callable[[int], object]


def frame(what: str, sequence: int, data: bytes = b"", step: int = 0, rank: int = 0, **content: Any) -> bytes:
    """A frame with a right checksum, whatever it says."""
    head = json.dumps({**content, "what": what, "step": step, "rank": rank, "sequence": sequence}).encode()
    return framed(head, data)


def framed(head: bytes, data: bytes = b"") -> bytes:
    """Any header as a frame."""
    return HEAD.pack(b"MSP1", len(head), len(data), zlib.crc32(data, zlib.crc32(head))) + head + data


def connected(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=20)


def send(port: int, *frames: bytes) -> list[bytes]:
    """Send frames over a connection of their own; the first four bytes of what is said to each."""
    with connected(port) as one:
        return [said(one, sent) for sent in frames]


def said(connection: socket.socket, sent: bytes) -> bytes:
    """Send a frame; the four letters that are answered, empty where the connection has ended."""
    try:
        connection.sendall(sent)
        word = connection.recv(12)
        if word[:4] in (b"SKIP", b"DENY"):  # a reason follows
            connection.recv(int.from_bytes(word[4:], "big"))
        return word[:4]
    except ConnectionError:
        return b""


def honest_frames(step: int = 0, rank: int = 0) -> list[bytes]:
    """A step with one call, its two tensors, and the farewell."""
    begun = time.time_ns()
    call = {
        "input_args": [{**TENSOR, "shape": [2], "data_name": "a.pt"}],
        "input_kwargs": {},
        "output": [{**TENSOR, "shape": [2], "data_name": "b.pt"}],
    }
    all_of_it: list[tuple[str, bytes, dict[str, Any]]] = [
        ("begin", b"", BEGIN),
        ("tensor", struct.pack("<2f", 1, -1), {"name": "a.pt", "dtype": "float32", "shape": [2]}),
        ("tensor", struct.pack("<2f", 1, 0), {"name": "b.pt", "dtype": "float32", "shape": [2]}),
        ("record", json.dumps(call).encode(), RECORD),
        ("end", b"", {"is_complete": True}),
    ]
    made = [frame(what, begun + n, data, step, rank, **more) for n, (what, data, more) in enumerate(all_of_it)]
    return [*made, FAREWELL]


def honest(port: int) -> None:
    """A rank that sends one step and its farewell, and hears that all was taken."""
    assert send(port, *honest_frames()) == [*[b"TAKE"] * 5, b"DONE"]


class Check:
    """The receiving half of a check, in this process: what it takes is put on the disk in ``folder``."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.receiver = TcpReceiver(HOST, 0, **more)
        self.port = self.receiver.port
        self.steps: list[ReceivedStep] = []
        self._spool = Spool(folder / "spool", refuse=self.receiver.refuse)
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        self.steps.extend(self._spool.steps(self.receiver.frames()))

    def wait(self, seconds: float = 60) -> None:
        """Until it has ended by itself."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the check has not ended"
        self.receiver.close()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def calls(self) -> list[str]:
        """The calls in the steps that came, of which all values are there."""
        found = []
        for step in self.steps:
            assert not step.problem
            data = json.loads((step.folder / "dump.json").read_text())["data"]
            for name, call in data.items():
                for tensor in (*call["input_args"], *call["output"]):
                    assert (step.folder / "dump_tensor_data" / tensor["data_name"]).is_file()
                found.append(name)
        return found


@contextlib.contextmanager
def checking(folder: Path, **more: Any) -> Iterator[Check]:
    """A check that must end by itself."""
    check = Check(folder, **more)
    try:
        yield check
        check.wait()
    finally:
        check.receiver.close()


def attacked(folder: Path, attack: Attack, rank: Attack = honest, calls: int = 1, status: int = 0) -> str:
    """``run_ut`` listens, is attacked, and is sent one honest step, which must be in its result; what it printed.

    ``calls``: how many rows there must be in the result.
    """
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    section = {"is_online": True, "host": HOST, "port": port, "rank_list": []}
    (folder / "c.json").write_text(json.dumps({"run_ut": section}))
    words = ["-f", "pytorch", "run_ut", "-config", folder / "c.json", "-o", folder / "out", "--ranks", "1"]
    called = [Path(__file__).with_name("called.py"), folder / "report", 90, 8]
    check = forked.start(*map(str, [*called, *words]), cwd=folder)
    try:
        end = time.monotonic() + 60
        while "listening" not in "".join(check.output()) and time.monotonic() < end:
            time.sleep(0.05)
        for act in (attack, rank):
            with contextlib.suppress(OSError):
                act(port)
        done = check.wait(90)
    except subprocess.TimeoutExpired:
        raise AssertionError("the check has not ended 90 s after the farewell of its only rank") from None
    text = done.stdout + done.stderr
    assert "Traceback" not in text, text.strip().splitlines()[-1]
    rows = sum(len(one.read_text().splitlines()) - 1 for one in (folder / "out").glob("*result*.csv"))
    assert rows == calls, f"{rows} calls of the honest rank were checked; {text.strip().splitlines()[-1]}"
    assert done.returncode == status, text
    return text
