"""Who has not opened the printed address sees nothing of a run, and keeps nobody from seeing it."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hostile.made import dump, record

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

PATIENCE = 60


class Shown:
    """A page that is served: its port, its token, and answers to what is asked."""

    def __init__(self, process: subprocess.Popen[str], port: int, token: str) -> None:
        self.process, self.port, self.token = process, port, token

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Any:
        """The answer, with its content in ``.content``; names of headers have ``_`` for ``-``."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
            answer: Any = connection.getresponse()
            answer.content = answer.read()
            return answer
        finally:
            connection.close()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cookie(self) -> str:
        """What the first request of a browser is given."""
        answer = self.ask(f"/?token={self.token}")
        assert answer.status == 303
        return str(answer.getheader("Set-Cookie")).partition(";")[0]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("shown")
    dump(folder / "dump", {"Functional.relu.0.forward": record()})
    command = [sys.executable, "-m", "msprobe", "view", str(folder / "dump"), "--no-browser"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment) as process:
        assert process.stdout is not None
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{40,})\n", process.stdout.readline())
        try:
            assert found
            yield Shown(process, int(found[1]), found[2])
        finally:
            process.kill()


def test_the_first_request_is_sent_on_to_an_address_without_the_token(shown: Shown) -> None:
    answer = shown.ask(f"/?token={shown.token}")
    assert answer.status == 303
    assert answer.getheader("Location") == "./"
    name, _, attributes = str(answer.getheader("Set-Cookie")).partition("=")
    assert str(shown.port) in name
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(attributes.split("; "))
    assert shown.token not in str(answer.getheaders())
    assert answer.getheader("Cache-Control") == "no-store"
    assert answer.getheader("Referrer-Policy") == "no-referrer"
    assert shown.ask("/api/overview", Cookie=shown.cookie()).status == 200


def test_a_wrong_token_gets_no_cookie_and_leaves_the_address_as_well(shown: Shown) -> None:
    for token in ("wrong", "", shown.token[:-1], f"{shown.token}x", "%ff%00", "a" * 4000):
        answer = shown.ask(f"/?token={token}")
        assert (answer.status, answer.getheader("Location"), answer.getheader("Set-Cookie")) == (303, "./", None)
    assert shown.ask("/?" + "&".join(f"a{n}=1" for n in range(500))).status == 400


@pytest.mark.parametrize(
    "value", ["", "x", "msprobe=x", "{name}=", "{name}=wrong", "{name}={token}", "{cookie}x", "x{cookie}"]
)
def test_a_wrong_cookie_opens_nothing(shown: Shown, value: str) -> None:
    cookie = shown.cookie()
    text = value.format(name=cookie.partition("=")[0], token=shown.token, cookie=cookie)
    assert shown.ask("/api/overview", Cookie=text).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},  # a page of a different port of this machine
    ],
    ids=str,
)
def test_a_page_from_elsewhere_gets_nothing_even_with_the_cookie(shown: Shown, headers: dict[str, str]) -> None:
    assert shown.ask("/api/overview", Cookie=shown.cookie(), **headers).status == 403


def test_what_changes_something_says_from_which_page_it_comes(shown: Shown) -> None:
    body = json.dumps({"index": 0, "candidate": "a", "reference": None}).encode()
    cookie = shown.cookie()
    assert shown.ask("/api/matches", "POST", body, Cookie=cookie).status == 403
    assert shown.ask("/api/matches", "POST", body, Cookie=cookie, Origin="http://evil.example").status == 403
    # From the page itself it is looked at: there is no such pair.
    assert shown.ask("/api/matches", "POST", body, Cookie=cookie, Origin=shown.origin).status in (400, 404)


def test_all_answers_keep_to_this_page_and_are_kept_nowhere(shown: Shown) -> None:
    for path in ("/", "/app.js", "/api/overview", "/nothing", "/api/nothing"):
        answer = shown.ask(path, X_Msprobe_Token=shown.token)
        assert answer.getheader("Cache-Control") == "no-store", path
        assert answer.getheader("X-Content-Type-Options") == "nosniff"
        assert answer.getheader("X-Frame-Options") == "DENY"
        assert answer.getheader("Referrer-Policy") == "no-referrer"
        assert answer.getheader("Access-Control-Allow-Origin") is None
    policy = str(shown.ask("/").getheader("Content-Security-Policy"))
    assert policy.startswith("default-src 'none';")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    preflight = shown.ask("/api/matches", "OPTIONS", Origin="http://evil.example")
    assert preflight.status == 403
    assert preflight.getheader("Access-Control-Allow-Origin") is None


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b"x" * (1 << 20),
        b'{"index": ' + b"9" * 5000 + b', "candidate": "a", "reference": null}',
        b'{"index": 1e400, "candidate": "a", "reference": null}',
        b'{"index": NaN, "candidate": "a", "reference": null}',
        b'{"index": 0, "candidate": "../../etc/passwd", "reference": "/etc/passwd"}',
        b'{"index": 0, "candidate": "\\ud800", "reference": "\\u0000"}',
        b"\xff\xfe",
    ],
    ids=lambda body: str(body[:20]),
)  # fmt: skip
def test_any_body_ends_in_a_sentence_without_paths_of_this_machine(shown: Shown, body: bytes) -> None:
    answer = shown.ask("/api/matches", "POST", body, X_Msprobe_Token=shown.token)
    assert 400 <= answer.status < 500
    words = json.loads(answer.content)["error"]
    assert "Traceback" not in words
    assert str(Path(__file__).parents[2]) not in words


def test_silent_and_slow_connections_are_closed_and_keep_nobody_out(shown: Shown) -> None:
    silent = [socket.create_connection(("127.0.0.1", shown.port), timeout=PATIENCE) for _ in range(150)]
    for number, one in enumerate(silent):
        one.sendall((b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")[number % 3])
    assert shown.ask("/api/overview", X_Msprobe_Token=shown.token).status == 200
    end = time.monotonic() + PATIENCE
    for one in silent:
        one.settimeout(max(0.1, end - time.monotonic()))
        try:
            while one.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        one.close()
    assert shown.ask("/api/overview", X_Msprobe_Token=shown.token).status == 200


def test_a_body_that_never_comes_is_given_up(shown: Shown) -> None:
    lines = ("POST /api/matches HTTP/1.1", "Host: 127.0.0.1", f"X-Msprobe-Token: {shown.token}", "Content-Length: 100")
    head = "\r\n".join((*lines, "", ""))
    with socket.create_connection(("127.0.0.1", shown.port), timeout=PATIENCE) as slow:
        slow.sendall(head.encode() + b"{")
        assert b" 408 " in slow.recv(1000)
