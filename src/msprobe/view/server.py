"""The server of the page: HTTP on this machine, for whoever has the token.

The page itself is public (it holds nothing of a run); all that is asked of ``/api/`` needs the cookie that the token of
the address is exchanged for, or the token in a header (:mod:`msprobe.view.entrance`). Nothing is kept between two
questions: several tabs and users do not disturb each other. Each question is answered in a thread of its own.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from msprobe import log
from msprobe.errors import MsprobeError
from msprobe.messages import said, translated
from msprobe.view.entrance import Entrance
from msprobe.view.page_files import Page
from msprobe.view.source import NoSuchThingError, PageSource
from msprobe.view.unchanged import ChangedError

#: A question is short: a name or two.
MOST_QUESTION_BYTES = 1 << 16
#: It comes within so many seconds.
QUESTION_SECONDS = 10.0
_COMPRESSED_FROM = 1024
#: Compressed answers of whole places that stay in memory, bytes.
_MOST_ANSWER_BYTES = 64 << 20
_NUMBER = re.compile(r"-?[0-9]{1,9}")
_MOST_NUMBER = 10**9 - 1
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
#: Scripts, styles and questions of this server alone; pictures also of what the page draws itself.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

Answer = Callable[[Request], Any]


def new_token() -> str:
    """A token that nobody guesses: 256 bits."""
    return secrets.token_urlsafe(32)


def application(source: PageSource, token: str, page: Page, hosts: tuple[str, ...] = ()) -> ASGIApp:
    """The application that shows ``source`` to those who have ``token``.

    ``hosts``: names by which this machine may be asked besides those of itself; another name in ``Host`` or ``Origin``
    is refused, so that a page from elsewhere cannot ask through a browser.
    """
    questions = _Questions(source)
    api = {
        "/api/overview": (questions.overview, "GET"),
        "/api/place": (questions.place, "GET"),
        "/api/node": (questions.node, "GET"),
        "/api/picture": (questions.picture, "GET"),
        "/api/ranks": (questions.ranks, "GET"),
        "/api/lines": (questions.lines, "GET"),
        "/api/matches": (questions.matches, "GET"),
    }
    routes = [Route(path, _answered(ask), methods=[method]) for path, (ask, method) in api.items()]
    routes.append(Route("/api/matches", _matched(source), methods=["POST"]))
    routes.append(Route("/", _file(page, "index.html"), methods=["GET"]))
    routes += [Route(f"/{name}", _file(page, name), methods=["GET"]) for name in page.names]
    app = Starlette(routes=routes, exception_handlers={404: _nothing_here, 405: _nothing_here})
    app.router.redirect_slashes = False  # an address that is none is answered, and not sent on to another one
    return _Guard(app, Entrance(token, hosts))


async def _nothing_here(request: Request, problem: Exception) -> Response:
    status = getattr(problem, "status_code", 404)
    return _refusal(status, said("nothing-here", request.method.lower()))


class _Guard:
    """Refuses questions without the token, for another host, or from another page; exchanges the token of the first
    request for a cookie.
    """

    def __init__(self, inner: ASGIApp, entrance: Entrance) -> None:
        self._inner = inner
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        port = (scope.get("server") or ("", 0))[1] or 0
        headers: dict[bytes, bytes] = dict(scope["headers"])
        problem = self._entrance.problem(scope.get("scheme", "http"), scope["method"], scope["path"], headers, port)
        if problem:
            await _refusal(403, problem)(scope, receive, send)
            return
        cookie = None
        if scope["path"] == "/" and scope["method"] == "GET":
            try:
                cookie = self._entrance.cookie_for(scope.get("query_string", b""), port)
            except ValueError:
                await _refusal(400, said("too-many-address-fields"))(scope, receive, send)
                return
        if cookie is not None:
            # Without a fragment of its own: the browser keeps what the page has put there.
            response = Response(status_code=303, headers={**_HEADERS, "Location": "./", "Cache-Control": "no-store"})
            if cookie:
                response.headers["Set-Cookie"] = cookie
            await response(scope, receive, send)
            return
        await self._inner(scope, receive, send)


class _Questions:
    """Reads what is asked from the address, and asks the source."""

    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._answers: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def overview(self, request: Request) -> Any:
        return self._source.overview()

    def place(self, request: Request) -> Any:
        index = _number(request, "index")
        key = (index, self._source.version(index))
        with self._lock:
            known = self._answers.get(key)
            if known is not None:
                self._answers.move_to_end(key)
        # Asked all the same: it says if a file has changed.
        place = self._source.place(index)
        if known is not None:
            return known
        made = gzip.compress(_json(place), 1)
        with self._lock:
            self._answers[key] = made
            self._bytes += len(made)
            while self._bytes > _MOST_ANSWER_BYTES and len(self._answers) > 1:
                self._bytes -= len(self._answers.popitem(last=False)[1])
        return made

    def node(self, request: Request) -> Any:
        return self._source.node(_number(request, "index"), _number(request, "row"))

    def picture(self, request: Request) -> Any:
        slot = request.query_params.get("slot")
        if not slot:
            raise _BadQuestionError("slot is missing: name the tensor.")
        return self._source.picture(_number(request, "index"), _number(request, "row"), slot)

    def ranks(self, request: Request) -> Any:
        step = request.query_params.get("step")
        return self._source.ranks(None if step in (None, "", "null") else _number(request, "step"))

    def lines(self, request: Request) -> Any:
        return self._source.lines(_number(request, "index"))

    def matches(self, request: Request) -> Any:
        return self._source.matches(_number(request, "index"))


class _BadQuestionError(MsprobeError):
    """The address, or the body of a question, makes no sense."""


def _number(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not _NUMBER.fullmatch(text):
        raise _BadQuestionError(said("question-number-wrong", name, text[:40]))
    return int(text)


def _answered(ask: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await run_in_threadpool(_answer, ask, request)

    return answer


def _answer(ask: Answer, request: Request) -> Response:
    try:
        content = ask(request)
    except MemoryError:
        return _refusal(500, said("too-large-for-memory"))
    except MsprobeError as problem:
        return _refusal(_status_of(problem), problem.message)
    except Exception as problem:
        # What it says may hold paths and values: it is for the console of who has started the server.
        log.error(said("mistake-of-msprobe", type(problem).__name__, problem))
        return _refusal(500, said("mistake-on-console", type(problem).__name__))
    return _compressed(request, content)


def _matched(source: PageSource) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            body = await asyncio.wait_for(_body(request), QUESTION_SECONDS)
        except asyncio.TimeoutError:
            return _refusal(408, said("question-too-slow", QUESTION_SECONDS))
        if body is None:
            return _refusal(400, said("question-too-long", MOST_QUESTION_BYTES))
        return await run_in_threadpool(_answer, lambda _: _match(source, body), request)

    return answer


async def _body(request: Request) -> bytes | None:
    """What is asked; None if it is too long."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_QUESTION_BYTES:
            return None
    return body


def _match(source: PageSource, body: bytes) -> Any:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise _BadQuestionError(said("question-no-json")) from problem
    if not isinstance(asked, dict):
        raise _BadQuestionError(said("question-no-object"))
    index, candidate, reference = asked.get("index"), asked.get("candidate"), asked.get("reference")
    if (
        type(index) is not int
        or abs(index) > _MOST_NUMBER
        or not isinstance(candidate, str)
        or not isinstance(reference, (str, type(None)))
    ):
        raise _BadQuestionError(said("question-fields-wrong"))
    return source.match(index, candidate, reference, asked.get("with_children") is True)


def _status_of(problem: MsprobeError) -> int:
    if isinstance(problem, ChangedError):
        return 409
    return 404 if isinstance(problem, NoSuchThingError) else 400


def _compressed(request: Request, content: Any) -> Response:
    """An answer; bytes are compressed JSON already."""
    accepts = "gzip" in request.headers.get("accept-encoding", "")
    headers = {**_HEADERS, "Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    data = content if isinstance(content, bytes) else _json(content)
    if isinstance(content, bytes) and not accepts:
        data = gzip.decompress(content)
    elif not isinstance(content, bytes) and accepts and len(data) >= _COMPRESSED_FROM:
        data, content = gzip.compress(data, 3), b""
    if isinstance(content, bytes) and accepts:
        headers["Content-Encoding"] = "gzip"
    return Response(data, headers=headers, media_type="application/json")


def _json(content: Any) -> bytes:
    return orjson.dumps(content, default=str, option=orjson.OPT_NON_STR_KEYS)


def _refusal(status: int, message: str) -> Response:
    text = translated(message).encode("utf-8", "backslashreplace").decode()
    return Response(
        orjson.dumps({"error": text}),
        status_code=status,
        headers={**_HEADERS, "Cache-Control": "no-store"},
        media_type="application/json",
    )


def _file(page: Page, name: str) -> Callable[[Request], Awaitable[Response]]:
    """A file of the page. Only those that the package has are there: no path is taken from an address."""

    async def answer(request: Request) -> Response:
        headers = {**_HEADERS, "Content-Security-Policy": POLICY, "Cache-Control": "no-store"}
        return Response(page.read(name), headers=headers, media_type=page.type_of(name))

    return answer
