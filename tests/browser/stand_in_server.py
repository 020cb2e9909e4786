"""A server with made-up answers, for tests of the page alone: the protocol of the page, nothing of msprobe.

``python -m browser.stand_in_server ROWS [--single]`` (in tests/) serves until it is ended.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from browser import answers

PAGE = Path(__file__).resolve().parents[2] / "src" / "msprobe" / "view" / "page"
TOKEN = "a-token-of-tests"
TYPES = {
    "": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
}
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:"


class StandIn:
    """What is served; tests change it to see what the page does."""

    def __init__(self, rows: int = 600, *, single: bool = False, places: int = 1, micro_steps: int = 1) -> None:
        self.single = single
        self.place = answers.place(rows, single=single, micro_steps=micro_steps)
        self.overview = answers.overview(self.place, single=single, places=places)
        self.pairs: dict[str, str] = {}
        self.asked: list[str] = []
        self.fails: dict[str, tuple[int, str]] = {}
        self._packed: bytes | None = None

    def answer(self, question: str, values: dict[str, str]) -> Any:
        if question == "overview":
            return self.overview
        if question == "place":
            return self.place
        if question == "node":
            return answers.node(self.place, int(values["row"]), single=self.single)
        if question == "picture":
            return answers.picture()
        if question == "ranks":
            return answers.ranks()
        if question == "lines":
            return {"lines": ["/w/model.py:17 in forward: x = self.fc2(x)"], "rows": [-1] * len(self.place["names"])}
        if question == "matches":
            return {"pairs": self.pairs, "file": "candidate.vis.config"}
        return None

    def match(self, body: dict[str, Any]) -> Any:
        if body["reference"] is None:
            self.pairs.pop(body["candidate"], None)
        else:
            self.pairs[body["candidate"]] = body["reference"]
            row = self.place["names"].index(body["candidate"])
            self.place = {**self.place, "sides": list(self.place["sides"]), "status": list(self.place["status"])}
            self.place["sides"][row] = 0
            self.place["status"][row] = answers.UNEXPLAINED
        self._packed = None
        return self.answer("matches", {})

    def packed_place(self) -> bytes:
        if self._packed is None:
            self._packed = gzip.compress(json.dumps(self.place).encode(), 1)
        return self._packed


def handler(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            stand_in.asked.append(self.path)
            name = address.path.removeprefix("/")
            token = parse_qs(address.query).get("token")
            if not name and token:
                self.send_on(token[0])
                return
            if name in TYPES:
                self.send(200, (PAGE / (name or "index.html")).read_bytes(), TYPES[name])
                return
            question = name.removeprefix("api/")
            if f"stand-in={TOKEN}" not in (self.headers["Cookie"] or ""):
                self.send_json(403, {"error": "the token is missing or wrong"})
            elif question in stand_in.fails:
                status, words = stand_in.fails[question]
                self.send_json(status, {"error": words})
            elif question == "place":
                self.send(200, stand_in.packed_place(), "application/json", packed=True)
            else:
                values = {key: texts[0] for key, texts in parse_qs(address.query).items()}
                answer = stand_in.answer(question, values)
                self.send_json(404 if answer is None else 200, answer or {"error": f"no such question: {question}"})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_json(200, stand_in.match(body))

        def send_on(self, token: str) -> None:
            """To the address without the token, with a cookie for the right one."""
            self.send_response(303)
            self.send_header("Location", "./")
            if token == TOKEN:
                self.send_header("Set-Cookie", f"stand-in={TOKEN}; HttpOnly; SameSite=Strict; Path=/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def send_json(self, status: int, content: Any) -> None:
            self.send(status, json.dumps(content).encode(), "application/json")

        def send(self, status: int, content: bytes, kind: str, *, packed: bool = False) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Security-Policy", POLICY)
            if packed:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Nothing: tests read what was asked from `asked`."""

    return Handler


@contextlib.contextmanager
def serving(stand_in: StandIn, port: int = 0) -> Iterator[str]:
    """The address of the page while the server runs."""
    server = ThreadingHTTPServer(("127.0.0.1", port), handler(stand_in))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/?token={TOKEN}"
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=2000)
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--places", type=int, default=4)
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    with serving(StandIn(args.rows, single=args.single, places=args.places), args.port) as address:
        print(address, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
