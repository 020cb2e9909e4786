"""Who may ask the server of the page: the token of the printed address, or the cookie that it is exchanged for.

The first request brings the token in the address. It is answered with a cookie and sent on to the address without the
token, so that history, bookmarks, pictures of the screen and what the page asks for hold none. The cookie is a secret
of its own, named after the port, cannot be read by scripts, and is sent by no page of another site.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping
from urllib.parse import parse_qs

from msprobe.messages import said

TOKEN_HEADER = "x-msprobe-token"
#: Names of this machine by which it may be asked.
HOSTS = ("127.0.0.1", "localhost", "[::1]")
# The address that is typed or clicked, and what the page of this server asks for.
_OWN_SITES = (b"none", b"same-origin")


class Entrance:
    """``token``: that of the printed address. ``hosts``: names by which this machine may be asked besides its own;
    another name in ``Host`` or ``Origin`` is refused, so that a page from elsewhere cannot ask through a browser.
    """

    def __init__(self, token: str, hosts: tuple[str, ...] = ()) -> None:
        self._token = token.encode()
        self._secret = secrets.token_urlsafe(32).encode()
        self._hosts = {host.lower() for host in (*HOSTS, *hosts)}

    def cookie_for(self, query: bytes, port: int) -> str | None:
        """What a first request sets: a cookie for the right token, "" for a wrong one; None where it brings none.

        Raises ValueError for a query of too many fields.
        """
        given = parse_qs(query.decode("latin-1"), max_num_fields=20, keep_blank_values=True).get("token")
        if given is None:
            return None
        if not hmac.compare_digest(given[0].encode("utf-8", "surrogatepass"), self._token):
            return ""
        return f"{_name(port)}={self._secret.decode()}; HttpOnly; SameSite=Strict; Path=/"

    def problem(self, scheme: str, method: str, path: str, headers: Mapping[bytes, bytes], port: int) -> str:
        """Why a request is refused; "" if it is not. The files of the page are public, they hold nothing of a run."""
        host = headers.get(b"host", b"").decode("latin-1")
        if _without_port(host) not in self._hosts:
            return said("server-of-this-machine")
        origin = headers.get(b"origin")
        own_origin = f"{scheme}://{host}".encode("latin-1")
        if origin is not None and origin != own_origin:
            return said("only-page-of-server")
        if not path.startswith("/api/"):
            return ""
        if headers.get(b"sec-fetch-site", b"none") not in _OWN_SITES:
            return said("only-page-of-server")
        given = headers.get(TOKEN_HEADER.encode(), b"")
        if given:
            is_known = hmac.compare_digest(given, self._token)
        else:
            is_known = hmac.compare_digest(_cookie(headers.get(b"cookie", b""), _name(port)), self._secret)
            # A browser sends the cookie by itself: what changes something says which page it comes from.
            if is_known and method != "GET" and origin != own_origin:
                return said("only-page-of-server")
        return "" if is_known else said("token-wrong")


def _name(port: int) -> str:
    # A browser has the same cookies for all ports of a machine.
    return f"msprobe-{port}"


def _cookie(header: bytes, name: str) -> bytes:
    for pair in header.split(b";"):
        key, _, value = pair.strip().partition(b"=")
        if key == name.encode():
            return value
    return b""


def _without_port(host: str) -> str:
    return re.sub(r":\d+$", "", host).lower()
