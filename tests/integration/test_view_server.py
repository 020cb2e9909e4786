"""``msprobe view`` as a user runs it: a process, asked over HTTP."""

from __future__ import annotations

import concurrent.futures
import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from support.coded_texts import mentions
from support.protocol_answers import all_misfits
from unit.diagnose.training import Plan
from unit.view.pages import LARGER, pair

from msprobe.messages import said

PATIENCE = 60


@dataclass
class Server:
    """A running server, and the address that it printed."""

    process: subprocess.Popen[str]
    port: int
    token: str

    def ask(
        self, path: str, method: str = "GET", body: Any = None, token: str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content of an answer; the path goes as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        given = {"X-Msprobe-Token": self.token if token is None else token, **headers}
        try:
            connection.request(method, path, body, {name: value for name, value in given.items() if value})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def json(self, path: str, **more: Any) -> Any:
        """The content of an answer that has to be good."""
        status, _, content = self.ask(path, **more)
        assert status == 200, content
        return json.loads(content)

    def error(self, path: str, **more: Any) -> tuple[int, str]:
        """Status and sentence of a refusal."""
        status, headers, content = self.ask(path, **more)
        assert headers["content-type"] == "application/json"
        return status, json.loads(content)["error"]


def start(*words: str | Path, cwd: Path) -> Server:
    process = subprocess.Popen(
        [sys.executable, "-m", "msprobe", "view", *map(str, words), "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    address = process.stdout.readline()
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{40,})\n", address)
    if found is None:
        process.kill()
        _, problem = process.communicate()
        raise AssertionError(address + problem)
    return Server(process, int(found[1]), found[2])


def stop(server: Server) -> None:
    server.process.kill()
    server.process.communicate()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("view")
    (folder / "here").mkdir()
    found = start(
        *pair(folder, Plan(steps=2, updated={"head.bias": lambda w: w + 1}), Plan(steps=2)), cwd=folder / "here"
    )
    yield found
    stop(found)


def test_the_page_is_there_without_a_token_and_holds_nothing_of_the_run(server: Server) -> None:
    status, headers, content = server.ask("/", token="")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    assert b"candidate" not in content
    for name in ("app.js", "app.css"):
        status, _, content = server.ask(f"/{name}", token="")
        assert status == 200
        assert content


@pytest.mark.parametrize("question", ["overview", "place?index=0", "node?index=0&row=0", "matches?index=0", "ranks"])
def test_nothing_is_answered_without_the_token(server: Server, question: str) -> None:
    for token in ("", "wrong", server.token[:-1], f"{server.token}x"):
        status, words = server.error(f"/api/{question}", token=token)
        assert (status, words) == (403, said("token-wrong"))
    # Not in the address of a question either: that is written to logs.
    assert server.ask(f"/api/{question.partition('?')[0]}?token={server.token}", token="")[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/../pyproject.toml", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/app.js/../../__init__.py",
        "//etc/passwd", "/etc/passwd", "/page/app.js", "/.git/config", "/app.js%00.html", "/api/../app.py",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_page(server: Server, path: str) -> None:
    status, _, content = server.ask(path)
    assert status == 404, path
    assert b"root:" not in content


def test_answers_are_compressed_for_those_who_ask(server: Server) -> None:
    status, headers, packed = server.ask("/api/place?index=0", **{"Accept-Encoding": "gzip"})
    assert (status, headers["content-encoding"]) == (200, "gzip")
    assert json.loads(gzip.decompress(packed)) == server.json("/api/place?index=0")


@pytest.mark.parametrize(
    ("question", "status", "words"),
    [
        ("place", 400, "index must be a whole number, found ''."),
        ("place?index=1e9", 400, "index must be a whole number"),
        ("place?index=99999999999999999999", 400, "index must be a whole number"),
        ("place?index=99", 404, "there is no place 99; there are 2."),
        ("place?index=-1", 404, "there is no place -1"),
        ("node?index=0&row=123456", 404, "there is no row 123456"),
        ("node?index=0", 400, "row must be a whole number"),
        ("picture?index=0&row=0", 400, "slot is missing"),
        ("picture?index=0&row=0&slot=%3Cb%3E", 404, "this row has no tensor '<b>'."),
        ("ranks?step=77", 404, "there is no step 77."),
        ("nothing", 404, "there is nothing here"),
    ],
)
def test_a_bad_question_gets_one_sentence(server: Server, question: str, status: int, words: str) -> None:
    found = server.error(f"/api/{question}")
    assert found[0] == status
    assert words in found[1]
    assert "Traceback" not in found[1]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "no JSON"),
        (b"[]", "must be a JSON object"),
        (b"[" * 60_000, "no JSON"),
        (b"{}", "index must be a whole number"),
        (b'{"index": true, "candidate": "a", "reference": null}', "index must be a whole number"),
        (b'{"index": 0, "candidate": ["a"], "reference": null}', "candidate a name"),
        (b'{"index": 0, "candidate": "a", "reference": "b"}', "the candidate has no record 'a'"),
        (b"x" * (1 << 17), "more than 65536 bytes"),
    ],
)
def test_a_bad_match_gets_one_sentence(server: Server, body: bytes, words: str) -> None:
    status, found = server.error("/api/matches", method="POST", body=body)
    assert status == 400
    assert words in found


def test_only_matches_can_be_written(server: Server) -> None:
    for path in ("/", "/api/overview", "/api/place?index=0", "/app.js"):
        for method in ("POST", "PUT", "DELETE"):
            assert server.ask(path, method=method, body=b"{}")[0] in (404, 405)


def test_many_tabs_and_users_get_the_same_answers_at_once(server: Server) -> None:
    place = server.json("/api/place?index=0")
    rows = range(min(40, len(place["names"])))
    alone = [server.json(f"/api/node?index=0&row={row}") for row in rows]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        questions = [f"/api/node?index={number % 2}&row={row}" for row in rows for number in range(4)]
        answers = list(pool.map(server.json, questions))
        places = list(pool.map(server.json, ["/api/place?index=0", "/api/place?index=1"] * 8))
    together = [answer for question, answer in zip(questions, answers, strict=True) if "index=0" in question]
    assert together == [answer for answer in alone for _ in range(2)]
    assert all(answer == place for answer in places[::2])


def test_all_that_a_page_asks_is_answered_as_declared(tmp_path: Path) -> None:
    wrong = Plan(results=LARGER, values=True, steps=2)
    shown = start(*pair(tmp_path, [Plan(values=True, steps=2), wrong], [Plan(values=True, steps=2)] * 2), cwd=tmp_path)

    def ask(question: str, **values: Any) -> Any:
        return shown.json(f"/api/{question}?{urlencode({name: str(value) for name, value in values.items()})}")

    assert all_misfits(ask) == []
    stop(shown)


def test_a_match_is_written_beside_and_seen_by_all(server: Server) -> None:
    place = server.json("/api/place?index=0")
    name = next(one for one in place["names"] if one.startswith("Functional.mse_loss"))
    body = json.dumps({"index": 0, "candidate": name, "reference": name, "with_children": False})
    answer = server.json("/api/matches", method="POST", body=body)
    file = Path(answer["file"])
    assert json.loads(file.read_text())[name] == name
    assert file.parent.name == "here"
    assert server.json("/api/matches?index=0") == answer
    assert "made by hand" in str(server.json("/api/place?index=0")["notes"])
    undo = json.dumps({"index": 0, "candidate": name, "reference": None, "with_children": False})
    assert name not in server.json("/api/matches", method="POST", body=undo)["pairs"]


def test_a_file_that_changes_or_vanishes_is_a_conflict_in_words(tmp_path: Path) -> None:
    runs = pair(tmp_path)
    server = start(*runs, cwd=tmp_path)
    try:
        server.json("/api/place?index=0")
        file = next(runs[1].rglob("dump.json"))
        os.utime(file, (1, 1))
        status, words = server.error("/api/node?index=0&row=0")
        assert status == 409
        assert mentions(words, "file-changed-since")
        file.unlink()
        assert server.error("/api/place?index=0")[0] == 409
        assert server.json("/api/overview")["verdict"]["status"] == "diverged"
    finally:
        stop(server)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_quietly(tmp_path: Path, how: signal.Signals) -> None:
    server = start(pair(tmp_path)[0], cwd=tmp_path)
    server.json("/api/overview")
    server.process.send_signal(how)
    output, problem = server.process.communicate(timeout=PATIENCE)
    assert (output, problem) == ("", "Ctrl-C ends it.\n")
    if how == signal.SIGINT:
        assert server.process.returncode == 0


def test_garbage_on_the_wire_does_not_end_it(server: Server) -> None:

    for garbage in (
        b"\x16\x03\x01\x00\xa5\x01",
        b"GET / HTTP/9.9\r\n\r\n",
        b"A" * (1 << 20),
        b"GET /" + b"a" * (1 << 17),
    ):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as raw:
            try:
                raw.sendall(garbage)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(1 << 16):
                    pass
            except OSError:
                pass
    assert server.json("/api/overview")["format"] == 1


def test_a_huge_broken_dump_is_reported_and_not_loaded(tmp_path: Path) -> None:
    folder = tmp_path / "step0" / "rank0"
    folder.mkdir(parents=True)
    with open(folder / "dump.json", "wb") as file:
        file.write(b'{"data": {"a": ')
        file.truncate(1 << 30)  # no block of it is on the disk
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "msprobe", "view", str(tmp_path), "--no-browser"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 2, done.stderr
    assert "dump.json" in done.stderr
    assert "Traceback" not in done.stderr
    assert time.monotonic() - began < PATIENCE
