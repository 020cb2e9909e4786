"""What a record of an online check costs on its way, over our frames and over HTTP/1.1: of the standard
library, and of the server of the page.

``python bench/precheck/wire.py`` prints a table (five minutes). Both ends are processes of their own on this machine,
both say a word on each record before the next is sent, check its header (:mod:`msprobe.precheck.online.schema`) and its
CRC, and keep at most 20 that nobody has taken. The HTTP ends do no more than that: they bound neither connections nor
their time, and know no senders, so that what they lack can only make them slower. Ways alternate. The table
has medians.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import multiprocessing
import queue
import socket
import ssl
import statistics
import subprocess
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from msprobe.precheck.online import schema
from msprobe.precheck.online.frames import WireFrame
from msprobe.precheck.online.tcp import TcpSender
from msprobe.precheck.online.tcp_receiver import TcpReceiver
from msprobe.precheck.online.tls import context_for

HOST = "127.0.0.1"
ROUNDS = 7
SMALL = 3000
LARGE = 24
LARGE_BYTES = 16 << 20
_HELD = 20
_PIECE = 1 << 20
_BEGIN = {"header": {}, "extra": {}, "kind": "dump", "with_stacks": False, "with_construct": False,
          "with_tensors": True}  # fmt: skip


# ---------------------------------------------------------------- the other way: http.client and http.server


class HttpSender:
    """One request for each frame, over one connection: its header as JSON, then its data. Nothing is sent again."""

    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
        self._connection = kind(HOST, port, timeout=60, **({"context": tls} if tls else {}))
        self._sequence = time.time_ns()

    def send(self, frame: WireFrame) -> None:
        self._sequence += 1
        fixed = {"what": frame.what, "step": frame.step, "rank": frame.rank, "sequence": self._sequence}
        header, data = json.dumps({**frame.content, **fixed}).encode(), memoryview(frame.data).cast("B")
        self._connection.request(
            "POST",
            "/frame",
            iter((header, data)),
            {
                "Content-Length": str(len(header) + len(data)),
                "Header-Length": str(len(header)),
                "CRC": str(zlib.crc32(data, zlib.crc32(header))),
            },
        )
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.reason

    def close(self) -> None:
        self._connection.request("POST", "/farewell", b"")
        self._connection.getresponse().read()
        self._connection.close()


def checked(whole: bytearray, header_length: int, crc: int) -> WireFrame:
    """A frame, as :func:`msprobe.precheck.online.frames.unpack` checks it."""
    content = schema.header_of(bytes(whole[:header_length]))
    data = memoryview(whole)[header_length:]
    schema.check_length(content, len(data))
    if zlib.crc32(whole) != crc:
        raise ValueError("damaged")
    if content["what"] == "record":
        schema.check_record(bytes(data))
    what, step, rank, _ = (content.pop(name) for name in ("what", "step", "rank", "sequence"))
    return WireFrame(what, step, rank, content, data)


class HttpReceiver:
    """Takes them, and gives them in their order."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        taken = self._taken = queue.Queue[WireFrame | None](_HELD)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                whole, headers = self.read(int(self.headers["Content-Length"])), self.headers
                is_frame = self.path == "/frame"
                taken.put(checked(whole, int(headers["Header-Length"]), int(headers["CRC"])) if is_frame else None)
                self.send_response_only(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def read(self, length: int) -> bytearray:
                """Memory is taken as bytes come, so that a length alone takes none."""
                received = bytearray()
                while len(received) < length:
                    received += self.rfile.read1(min(length - len(received), _PIECE))
                return received

            def log_message(self, *_: Any) -> None:
                """Nothing of each request."""

        server = ThreadingHTTPServer((HOST, 0), Handler)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.port: int = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def frames(self) -> Iterator[WireFrame]:
        while (frame := self._taken.get()) is not None:
            yield frame


class UvicornReceiver(HttpReceiver):
    """The same by the server of ``msprobe view``."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        import uvicorn

        self._taken = queue.Queue[WireFrame | None](_HELD)
        config = uvicorn.Config(self._answer, interface="asgi3", lifespan="off", log_level="error", access_log=False)
        config.load()
        config.ssl = tls
        listening = socket.create_server((HOST, 0))
        self.port = listening.getsockname()[1]
        threading.Thread(target=uvicorn.Server(config).run, args=([listening],), daemon=True).start()

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        whole, more = bytearray(), True
        while more:
            message = await receive()
            whole += message.get("body", b"")
            more = message.get("more_body", False)
        headers = dict(scope["headers"])
        is_frame = scope["path"] == "/frame"
        frame = checked(whole, int(headers[b"header-length"]), int(headers[b"crc"])) if is_frame else None
        try:
            self._taken.put_nowait(frame)
        except queue.Full:
            await asyncio.get_running_loop().run_in_executor(None, self._taken.put, frame)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


WAYS: dict[str, Callable[[ssl.SSLContext | None], Any]] = {
    "frames": lambda tls: TcpReceiver(HOST, 0, tls, held=_HELD),
    "http.server": HttpReceiver,
    "uvicorn": UvicornReceiver,
}


# ---------------------------------------------------------------- measuring


def receive(way: str, keys: str, pipe: Connection) -> None:
    """The checking end, in a process of its own: its port, then the seconds of its processor, for each sender."""
    tls = context_for(keys, "server")
    receiver = WAYS[way](tls)
    pipe.send(receiver.port)
    began = time.process_time()
    for _ in receiver.frames():
        pass
    pipe.send(time.process_time() - began)
    pipe.recv()  # until the farewell has been answered


def measured(way: str, keys: str, frames: Sequence[WireFrame]) -> tuple[float, float, list[float]]:
    """Seconds, seconds of both processors, and the seconds that each frame took until its word had come."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=receive, args=(way, keys, there), daemon=True)
    process.start()
    port, tls = here.recv(), context_for(keys, "client")
    sender = TcpSender(HOST, port, tls) if way == "frames" else HttpSender(port, tls)
    sender.send(WireFrame("begin", 0, 0, _BEGIN))
    sender.send(small_frames(1)[0])  # a rank counts when a record of it has come
    each = []
    began, processor = time.perf_counter(), time.process_time()
    for frame in frames:
        start = time.perf_counter()
        sender.send(frame)
        each.append(time.perf_counter() - start)
    seconds, processor = time.perf_counter() - began, time.process_time() - processor
    sender.send(WireFrame("end", 0, 0, {"is_complete": True}))
    sender.close()
    processor += here.recv()
    here.send(None)
    process.join()
    return seconds, processor, each


def small_frames(count: int = SMALL) -> list[WireFrame]:
    """Records of a call with three tensors, about a kilobyte each."""
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8, 1024], "Max": 2.771343, "Min": -2.416103}
    tensor |= {"Mean": -0.01344, "Norm": 90.18, "requires_grad": True, "data_name": "Functional.linear.0.pt"}
    text = json.dumps({"input_args": [tensor, tensor], "input_kwargs": {}, "output": [tensor]}).encode()
    return [
        WireFrame("record", 0, 0, {"name": f"Functional.linear.{n}.forward", "stack": n, "parent": None}, text)
        for n in range(count)
    ]


def large_frames() -> list[WireFrame]:
    """Tensors of 16 MiB."""
    data = memoryview(np.random.default_rng(1).standard_normal(LARGE_BYTES // 4, np.float32)).cast("B")
    content = {"dtype": "float32", "shape": [LARGE_BYTES // 4]}
    return [WireFrame("tensor", 0, 0, {**content, "name": f"{n}.pt"}, data) for n in range(LARGE)]


def made_keys(folder: Path) -> str:
    """Keys and certificates of both sides."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=b")
    for side in ("client", "server"):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{side}.key", "-out", "r", "-subj", f"/CN={side}")
        openssl(
            "x509", "-req", "-in", "r", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{side}.crt"
        )
    return str(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    print("| | records/s | µs a record, median | 99 of 100 | CPU µs a record | MB/s | CPU ms a 16 MiB |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for words, keys in (("plain", ""), ("TLS", made_keys(Path(folder)))):
            runs: dict[str, list[tuple[float, ...]]] = {way: [] for way in WAYS}
            for _ in range(rounds):
                for way, results in runs.items():
                    seconds, processor, each = measured(way, keys, small_frames())
                    last = sorted(each)[len(each) * 99 // 100]
                    large, work, _ = measured(way, keys, large_frames())
                    results.append(
                        (
                            SMALL / seconds,
                            statistics.median(each) * 1e6,
                            last * 1e6,
                            processor / SMALL * 1e6,
                            LARGE * LARGE_BYTES / large / 1e6,
                            work / LARGE * 1e3,
                        )
                    )
            for way, results in runs.items():
                cells = [f"{statistics.median(column):,.0f}" for column in zip(*results, strict=True)]
                print(f"| {way}, {words} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
